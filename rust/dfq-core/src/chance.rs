//! Randomness grown from a seed that is handed in.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::host;

/// A source of random numbers, shared by threads. A forked child draws others than its parent.
pub struct Chance {
    key: u64,
    counter: AtomicU64,
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Chance {
    /// A source that starts from `seed`.
    pub fn new(seed: u128) -> Chance {
        Chance {
            key: (seed >> 64) as u64,
            counter: AtomicU64::new(seed as u64),
        }
    }

    /// 64 random bits.
    pub fn next(&self) -> u64 {
        let count = self
            .counter
            .fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        mix(count ^ mix(self.key ^ u64::from(host::pid())))
    }

    /// 32 hex digits that nobody else has.
    pub fn nonce(&self) -> String {
        let mut digits = String::with_capacity(32);
        for bits in [self.next(), self.next()] {
            for shift in (0..64).step_by(4).rev() {
                let digit = (bits >> shift & 15) as usize;
                digits.push(char::from(b"0123456789abcdef"[digit]));
            }
        }
        digits
    }
}
