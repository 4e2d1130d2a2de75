//! Settings, and the one place that reads the environment.
//!
//! [`Config`] is a plain struct with NCCL's defaults. [`Config::from_env`] reads the `NCCL_IB_*`
//! names with NCCL's meaning and our own `IBNET_*`.
//!
//! [`settings`] has the one list of all settings, [`variable`] how a variable is written and read, and [`environment`]
//! what becomes of the variables that are set.

mod environment;
mod hca_filter;
mod interface_filter;
mod name_list;
#[cfg(test)]
mod page;
mod settings;
#[cfg(test)]
mod tests;
mod values;
mod variable;

pub use hca_filter::{HcaFilter, Placement};
pub use interface_filter::InterfaceFilter;
pub use name_list::InvalidList;
pub use settings::{Config, ConfigError};
pub use values::{DataDirect, Family, Partition, PathPolicy, RelaxedOrdering};
