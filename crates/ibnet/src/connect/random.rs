//! Numbers that a stranger cannot guess.

use crate::error::Error;

pub(crate) fn u32() -> Result<u32, Error> {
    getrandom::u32().map_err(failed)
}

pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

fn failed(error: getrandom::Error) -> Error {
    Error::system(
        "reading random bytes",
        std::io::Error::other(error.to_string()),
    )
}
