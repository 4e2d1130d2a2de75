//! What usually causes a failed completion, in words.

use ibnet_verbs::WcStatus;

/// What usually causes a completion status.
pub(crate) fn hint(status: WcStatus, timeout: u8, retries: u8) -> String {
    if status == WcStatus::RETRY_EXC_ERR {
        // The last try also waits for its answer.
        let seconds =
            4.096e-6 * f64::from(1_u32 << u32::from(timeout).min(31)) * (f64::from(retries) + 1.0);
        format!(
            "the peer did not answer for about {seconds:.1} s ({retries} retries, `retry_count`, with \
             time-out 4.096 µs · 2^{timeout}, `ack_timeout`); its process died, a link is down, or the two \
             GIDs cannot reach each other"
        )
    } else if status == WcStatus::REM_ACCESS_ERR || status == WcStatus::REM_INV_REQ_ERR {
        "the peer does not allow the access: its memory was deregistered or is smaller than said"
            .to_owned()
    } else if status == WcStatus::LOC_PROT_ERR {
        "local memory was deregistered or unmapped while in use".to_owned()
    } else if status == WcStatus::WR_FLUSH_ERR {
        "the queue pair was stopped by an earlier error or by closing".to_owned()
    } else if status == WcStatus::RNR_RETRY_EXC_ERR {
        "the peer had no receive posted".to_owned()
    } else {
        "see the device's manual".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_told_in_seconds() {
        let text = hint(WcStatus::RETRY_EXC_ERR, 20, 7);
        assert!(text.contains("34.4 s"), "{text}");
    }
}
