//! What an end may ask for.

/// What a connecting end may ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Traffic class of the packets, unless `NCCL_IB_TC` says otherwise; on InfiniBand also their
    /// service level if it is 0 to 15, unless `NCCL_IB_SL` says otherwise.
    pub traffic_class: Option<u8>,
    /// Waiting for a send costs no processor time, and sends can be [awaited](crate::ops::future): the
    /// devices tell of completions, and the receiver of what it announces. Each of these costs an
    /// interrupt, so whoever polls all the time goes without.
    pub notify: bool,
}

/// What the connections of a listener are to be like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenOptions {
    /// Waiting for a receive costs no processor time, and receives can be
    /// [awaited](crate::ops::future): the devices tell of completions. Each of these costs an interrupt,
    /// so whoever polls all the time goes without.
    pub notify: bool,
}
