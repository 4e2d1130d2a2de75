//! [`Variable`]: a variable of the environment, and the place among the settings that it is for.

use std::fmt::Debug;

use super::form::{Form, Of};
use super::reading::Reading;

/// What changes settings as a text says, or tells what was expected.
type Set<C> = dyn Fn(&mut C, &str) -> Result<(), String> + Send + Sync;

/// A variable that sets a field, or a part of one, of the settings `C`.
pub(super) struct Variable<C> {
    pub(super) name: &'static str,
    pub(super) field: &'static str,
    /// What is allowed, in words.
    pub(super) allowed: String,
    pub(super) reading: Reading,
    /// Sets what a text means; or tells what was expected, and changes nothing.
    pub(super) set: Box<Set<C>>,
    /// The value as a user would write or name it.
    pub(super) show: Box<Of<C, String>>,
    /// The value, if it is not allowed.
    pub(super) refused: Box<Of<C, Option<String>>>,
    /// How it differs in NCCL.
    #[cfg(test)]
    pub(super) differs: &'static str,
    /// What it is for; nothing where the documentation of the field says it.
    #[cfg(test)]
    pub(super) meaning: &'static str,
}

impl<C: 'static> Variable<C> {
    pub(super) fn new<T: Debug + 'static>(
        name: &'static str,
        field: &'static str,
        form: Form<T>,
        get: fn(&C) -> &T,
        get_mut: fn(&mut C) -> &mut T,
    ) -> Self {
        let Form {
            allowed,
            reading,
            read,
            allows,
            show,
        } = form;
        Self {
            name,
            field,
            allowed,
            // NCCL does not read this transport's own.
            reading: match name.starts_with("NCCL_") {
                true => reading,
                false => Reading::Text,
            },
            set: Box::new(move |settings, text| {
                *get_mut(settings) = read(text)?;
                Ok(())
            }),
            show: Box::new(move |settings| show(get(settings))),
            refused: Box::new(move |settings| {
                let value = get(settings);
                (!allows(value)).then(|| format!("{value:?}"))
            }),
            #[cfg(test)]
            differs: "",
            #[cfg(test)]
            meaning: "",
        }
    }
}
