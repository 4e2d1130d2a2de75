//! mlx5's second path to the GPU: listed alone, beside the usual one, or not at all.

use std::cell::RefCell;
use std::os::raw::{c_char, c_int};
use std::ptr;

use ibnet::Transport;
use ibnet_verbs::Mlx5Functions;
use ibnet_verbs::sys::{ibv_context, ibv_device, ibv_mr, ibv_pd};
use nix::errno::Errno;

use crate::machine::{Machine, line};

const MACHINE: &str = "
    pci 0000:03:00.0 id=15b3:1023
    pci 0005:01:00.0 id=15b3:1023
    rdma mlx5_0 on 0000:03:00.0 guid=c1 : ib 4xXDR
    rdma rxe0 on virtual guid=c2 : eth 1xEDR";

/// What libmlx5 says in this thread.
#[derive(Clone, Copy)]
struct Provider {
    path: &'static str,
    /// The answer to asking for the path: 0 or an errno.
    answer: i32,
    /// How the registration of no DMA-BUF fails.
    probe: Errno,
}

thread_local! {
    static PROVIDER: RefCell<Option<Provider>> = const { RefCell::new(None) };
}

fn provider() -> Provider {
    PROVIDER.with_borrow(|provider| provider.unwrap())
}

unsafe extern "C" fn is_supported(device: *mut ibv_device) -> bool {
    // SAFETY: the caller's device is alive; the first letters of its name are looked at.
    unsafe { (*device).name[0].cast_unsigned() == b'm' }
}

unsafe extern "C" fn get_path(_: *mut ibv_context, buffer: *mut c_char, length: usize) -> c_int {
    let Provider { path, answer, .. } = provider();
    if answer == 0 {
        assert!(path.len() < length);
        // SAFETY: there is room for the path and a null.
        unsafe {
            ptr::copy_nonoverlapping(path.as_ptr(), buffer.cast(), path.len());
            buffer.add(path.len()).write(0);
        }
    }
    answer
}

unsafe extern "C" fn reg_dmabuf_mr(
    _: *mut ibv_pd,
    _: u64,
    _: usize,
    _: u64,
    fd: c_int,
    _: c_int,
    _: c_int,
) -> *mut ibv_mr {
    assert_eq!(fd, -1);
    provider().probe.set();
    ptr::null_mut()
}

fn found(provider: Provider, setting: &str) -> Vec<String> {
    PROVIDER.set(Some(provider));
    let machine = Machine::new(MACHINE);
    let fabric = machine.fabric();
    let functions = Mlx5Functions {
        is_supported,
        get_data_direct_sysfs_path: get_path,
        reg_dmabuf_mr,
    };
    // SAFETY: the functions answer as those of libmlx5 do, and register nothing.
    let library = unsafe { machine.library(&fabric).with_mlx5(functions) };
    let config = machine.config(&[("NCCL_IB_DATA_DIRECT", setting)]);
    let transport = Transport::with_library(library, config).unwrap();
    transport.devices().iter().map(line).collect()
}

const WITH_IT: Provider = Provider {
    path: "/devices/pci0000:00/0005:01:00.0",
    answer: 0,
    probe: Errno::EBADF,
};

const PLAIN: &str = "mlx5_0:1 800000 at 03:00.0 card 03:00.0 #0";
const TWIN: &str = "mlx5_0_dma:1 800000 at 0005:01:00.0 card 0005:01:00.0 #0 flush";
const OTHER: &str = "rxe0:1 25000 #0";

#[test]
fn a_device_with_it_is_listed_as_the_user_wants() {
    assert_eq!(found(WITH_IT, "1"), [TWIN, OTHER]);
    assert_eq!(found(WITH_IT, ""), [TWIN, OTHER], "the default");
    assert_eq!(found(WITH_IT, "2"), [PLAIN, TWIN, OTHER]);
    assert_eq!(found(WITH_IT, "0"), [PLAIN, OTHER]);
}

#[test]
fn where_it_cannot_be_used_the_usual_path_stays() {
    for (what, provider) in [
        (
            "the device has none",
            Provider {
                answer: Errno::ENODEV as i32,
                ..WITH_IT
            },
        ),
        (
            "the library fails",
            Provider {
                answer: Errno::EIO as i32,
                ..WITH_IT
            },
        ),
        (
            // Pitfall 12: each probe is judged by itself.
            "the provider cannot register for it, although the device can",
            Provider {
                probe: Errno::EOPNOTSUPP,
                ..WITH_IT
            },
        ),
        (
            "its function is not there",
            Provider {
                path: "/devices/pci0000:00/0009:01:00.0",
                ..WITH_IT
            },
        ),
        (
            "what it names is no PCI function",
            Provider {
                path: "/class/infiniband",
                ..WITH_IT
            },
        ),
    ] {
        assert_eq!(found(provider, "1"), [PLAIN, OTHER], "{what}");
    }
}

#[test]
fn a_virtual_device_must_flush_if_a_member_must() {
    PROVIDER.set(Some(WITH_IT));
    let machine = Machine::new(MACHINE);
    let fabric = machine.fabric();
    let functions = Mlx5Functions {
        is_supported,
        get_data_direct_sysfs_path: get_path,
        reg_dmabuf_mr,
    };
    // SAFETY: as above.
    let library = unsafe { machine.library(&fabric).with_mlx5(functions) };
    let config = machine.config(&[("NCCL_IB_DATA_DIRECT", "2")]);
    let transport = Transport::with_library(library, config).unwrap();
    for members in [[0, 1], [1, 0]] {
        let index = transport.merge(&members).unwrap();
        // Pitfall 14: not by the first member alone.
        assert!(transport.devices()[index].force_flush);
    }
}
