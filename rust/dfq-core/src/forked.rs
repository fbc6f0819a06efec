//! What belongs to one process. A forked child has its parent's memory, and with it locks that
//! threads held which the child does not have; so it makes everything of this kind anew.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::host;

struct Owned<T> {
    generation: u64,
    value: T,
}

/// A value that is made at its first use, and again in a forked child.
pub struct PerProcess<T> {
    slot: AtomicPtr<Owned<T>>,
}

// SAFETY: the slot hands out `&T` to any thread and drops the T on any thread, so it may go and
// be shared wherever a T may.
unsafe impl<T: Send + Sync> Send for PerProcess<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for PerProcess<T> {}

impl<T> PerProcess<T> {
    /// Nothing yet.
    pub const fn new() -> Self {
        PerProcess {
            slot: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// This process's value.
    pub fn get_or_make<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        let generation = host::generation();
        let current = self.slot.load(Ordering::Acquire);
        // SAFETY: a pointer in the slot is null or came from a Box that is freed only by drop().
        if let Some(owned) = unsafe { current.as_ref() } {
            if owned.generation == generation {
                return Ok(&owned.value);
            }
        }
        let value = make()?;
        let fresh = Box::into_raw(Box::new(Owned { generation, value }));
        // The parent's value is left as it is: dropping it could wait for ever, or close a lock.
        match self
            .slot
            .compare_exchange(current, fresh, Ordering::AcqRel, Ordering::Acquire)
        {
            // SAFETY: just made, and in the slot now.
            Ok(_) => Ok(unsafe { &(*fresh).value }),
            Err(quicker) => {
                // SAFETY: `fresh` was not shared; `quicker` is another thread's, in the slot.
                unsafe {
                    drop(Box::from_raw(fresh));
                    Ok(&(*quicker).value)
                }
            }
        }
    }
}

impl<T> Drop for PerProcess<T> {
    fn drop(&mut self) {
        let current = *self.slot.get_mut();
        // SAFETY: as in get_or_make; nobody else has a reference any more.
        unsafe {
            if !current.is_null() && (*current).generation == host::generation() {
                drop(Box::from_raw(current));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    #[test]
    fn it_is_made_once_however_many_threads_ask() {
        let value: PerProcess<u64> = PerProcess::new();
        let seen: Vec<usize> = std::thread::scope(|scope| {
            let asking = (0..8).map(|number| {
                let value = &value;
                scope.spawn(move || {
                    let one: &u64 = value.get_or_make(|| Ok::<_, Infallible>(number)).unwrap();
                    ptr::from_ref(one) as usize
                })
            });
            let asking: Vec<_> = asking.collect();
            asking.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(seen.iter().all(|address| *address == seen[0]));
    }

    #[test]
    fn what_can_not_be_made_is_tried_again() {
        let value: PerProcess<u64> = PerProcess::new();
        assert_eq!(value.get_or_make(|| Err("no")), Err("no"));
        assert_eq!(value.get_or_make(|| Ok::<_, Infallible>(7)), Ok(&7));
    }
}
