//! Both ends of a connection, on a fabric with devices sim0 and sim1.

use ibnet::{
    Config, ConnectOptions, HcaFilter, InterfaceFilter, RecvConnection, SendConnection, Transport,
};
use simverbs::Fabric;

/// A connection from sim0 to sim1.
pub(crate) fn connect(fabric: &Fabric) -> (SendConnection, RecvConnection) {
    let open = |device: &str| {
        let mut config = Config::default();
        config.hca = HcaFilter::parse(&format!("={device}")).unwrap();
        config.interfaces = InterfaceFilter::parse("=lo").unwrap();
        Transport::with_library(fabric.library(), config).unwrap()
    };
    let (from, to) = (open("sim0"), open("sim1"));
    let mut listener = to.listen(0).unwrap();
    let handle = listener.handle();
    let mut connecting = from.connect(0, &handle, ConnectOptions::default()).unwrap();
    let (mut sending, mut receiving) = (None, None);
    while sending.is_none() || receiving.is_none() {
        if sending.is_none() {
            sending = connecting.poll().unwrap();
        }
        if receiving.is_none() {
            receiving = listener.poll_accept().unwrap();
        }
    }
    (sending.unwrap(), receiving.unwrap())
}
