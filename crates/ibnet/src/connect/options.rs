//! What an end may ask for.

/// What a connecting end may ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectOptions {
    /// Traffic class of the packets, unless [`Config::traffic_class`](crate::Config::traffic_class) says
    /// otherwise; on InfiniBand also their service level if it is 0 to 15, unless
    /// [`Config::service_level`](crate::Config::service_level) says otherwise.
    pub traffic_class: Option<u8>,
    /// Waiting for a send costs no processor time: the devices tell of completions, and the receiver of
    /// what it announces. Each of these costs an interrupt; without it waiting polls.
    pub notify: bool,
}

impl ConnectOptions {
    /// Sets [`traffic_class`](Self#structfield.traffic_class).
    #[must_use]
    pub fn traffic_class(mut self, traffic_class: Option<u8>) -> Self {
        self.traffic_class = traffic_class;
        self
    }

    /// Sets [`notify`](Self#structfield.notify).
    #[must_use]
    pub fn notify(mut self, notify: bool) -> Self {
        self.notify = notify;
        self
    }
}

/// What the connections of a listener are to be like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListenOptions {
    /// Waiting for a receive costs no processor time: the devices tell of completions. Each of these
    /// costs an interrupt; without it waiting polls.
    pub notify: bool,
}

impl ListenOptions {
    /// Sets [`notify`](Self#structfield.notify).
    #[must_use]
    pub fn notify(mut self, notify: bool) -> Self {
        self.notify = notify;
        self
    }
}
