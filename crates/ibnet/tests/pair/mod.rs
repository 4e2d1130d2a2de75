//! Both ends of a connection, on a fabric with devices sim0 and sim1.

use ibnet::{Config, ConnectOptions, RecvConnection, SendConnection, Transport, Wait};
use ibnet_simverbs::Fabric;
use ibnet_verbs::Library;

/// A transport on one device.
pub(crate) fn open(library: Library, device: &str) -> Transport {
    let mut config = Config::default();
    config.hca = format!("={device}").parse().unwrap();
    config.interfaces = "=lo".parse().unwrap();
    Transport::with_library(library, config).unwrap()
}

/// A connection between the first devices of two transports.
pub(crate) fn join(from: &Transport, to: &Transport) -> (SendConnection, RecvConnection) {
    let mut listener = to.listen(0).unwrap();
    let handle = listener.handle();
    let mut connecting = from.connect(0, &handle, ConnectOptions::default()).unwrap();
    let (mut sending, mut receiving) = (None, None);
    while sending.is_none() || receiving.is_none() {
        if sending.is_none() {
            sending = connecting.try_now().unwrap();
        }
        if receiving.is_none() {
            receiving = listener.accept().try_now().unwrap();
        }
    }
    (sending.unwrap(), receiving.unwrap())
}

/// A connection from sim0 to sim1.
pub(crate) fn connect(fabric: &Fabric) -> (SendConnection, RecvConnection) {
    join(
        &open(fabric.library(), "sim0"),
        &open(fabric.library(), "sim1"),
    )
}
