//! Which types can go to another thread, and which can be shared: checked by the compiler.

use ibnet::future::{Accept, FinishGroup, FinishRecv, FinishSend, PostRecv, PostSend};
use ibnet::{
    Buffer, Config, Connecting, Error, Handle, Listener, RecvConnection, RecvTicket, Region,
    Registrar, SendConnection, SendTicket, Transport,
};

const fn can_go_elsewhere<T: Send + Unpin + 'static>() {}
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

    can_be_shared::<Transport>();
    can_be_shared::<Registrar>();
    can_be_shared::<Region>();
    can_be_shared::<Buffer>();
    can_be_shared::<Handle>();
    can_be_shared::<Config>();
    can_be_shared::<Error>();

    can_be_awaited_anywhere::<Connecting>();
    can_be_awaited_anywhere::<Accept<'static>>();
    can_be_awaited_anywhere::<PostSend<'static>>();
    can_be_awaited_anywhere::<FinishSend<'static>>();
    can_be_awaited_anywhere::<PostRecv<'static>>();
    can_be_awaited_anywhere::<FinishRecv<'static>>();
    can_be_awaited_anywhere::<FinishGroup<'static>>();
};
