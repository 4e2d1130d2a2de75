//! Surviving fork(2).

use std::os::raw::c_int;
use std::sync::Arc;

use ibnet_verbs::sys::{IBV_FORK_DISABLED, IBV_FORK_ENABLED, IBV_FORK_UNNEEDED, ibv_fork_status};

use super::returned;
use crate::engine::Fork;
use crate::shared::Shared;

pub(crate) fn init(fabric: Option<Arc<Shared>>) -> c_int {
    returned(fabric.map_or(Ok(()), |shared| shared.lock().init_fork()))
}

pub(crate) fn status(fabric: Option<Arc<Shared>>) -> ibv_fork_status {
    match fabric.map_or(Fork::Unneeded, |shared| shared.lock().fork) {
        Fork::Unneeded => IBV_FORK_UNNEEDED,
        Fork::Disabled => IBV_FORK_DISABLED,
        Fork::Enabled => IBV_FORK_ENABLED,
    }
}
