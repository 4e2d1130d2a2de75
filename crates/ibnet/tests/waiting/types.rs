//! Which types can go to another thread, and which can be shared: checked by the compiler.

use ibnet::Accept;
use ibnet::operation::{Finish, FinishAny, Operation, Post};
use ibnet::raw::{Receiver, Sender};
use ibnet::{
    Buffer, Config, Connecting, Error, GroupTicket, Handle, Listener, OpError, RecvConnection,
    RecvTicket, Region, Registrar, SendConnection, SendTicket, Transport,
};

const fn can_go_elsewhere<T: Send + Unpin + 'static>() {}
const fn is_an_error<T: std::error::Error + Send + Sync>() {}
const fn can_be_shared<T: Send + Sync>() {}
const fn can_be_awaited_anywhere<T: Future + Send + Unpin>() {}

const _: () = {
    can_go_elsewhere::<Listener>();
    can_go_elsewhere::<Connecting>();
    can_go_elsewhere::<SendConnection>();
    can_go_elsewhere::<RecvConnection>();
    can_go_elsewhere::<Buffer>();
    can_go_elsewhere::<SendTicket>();
    can_go_elsewhere::<RecvTicket>();
    can_go_elsewhere::<GroupTicket>();

    can_be_shared::<Transport>();
    can_be_shared::<Registrar>();
    can_be_shared::<Region>();
    can_be_shared::<Buffer>();
    can_be_shared::<Handle>();
    can_be_shared::<Config>();
    can_be_shared::<Error>();

    is_an_error::<Error>();
    is_an_error::<OpError<Buffer>>();
    is_an_error::<ibnet::ConfigError>();
    is_an_error::<ibnet::InvalidList>();
    is_an_error::<ibnet::NotPciAddress>();

    can_be_awaited_anywhere::<Connecting>();
    can_be_awaited_anywhere::<Accept<'static>>();
    can_be_awaited_anywhere::<Operation<'static, Post<Sender, Buffer>>>();
    can_be_awaited_anywhere::<Operation<'static, Finish<Sender, Buffer>>>();
    can_be_awaited_anywhere::<Operation<'static, Post<Receiver, Vec<Buffer>>>>();
    can_be_awaited_anywhere::<Operation<'static, Finish<Receiver, Vec<Buffer>>>>();
    can_be_awaited_anywhere::<Operation<'static, FinishAny<'static, Receiver, Buffer>>>();
};
