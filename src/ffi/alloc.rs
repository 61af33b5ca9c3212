//! The global allocator. It is the server's, so that `INFO memory` counts the module's memory.

use redis_module::raw;
use std::alloc::{GlobalAlloc, Layout, System};

/// Whether this runs under Miri, which has no C: not even the pointers to the server's functions.
const IS_MIRI: bool = cfg!(miri);

/// The server's allocator; outside a server (unit tests, tests that link the
/// crate) the system's. The two never mix in one process: a server fills in
/// its functions before any code of ours allocates.
pub struct ServerAlloc;

// SAFETY: both allocators return memory that fits the layout or null, and a
// block goes back to the one it came from (see the type).
unsafe impl GlobalAlloc for ServerAlloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if IS_MIRI {
            // SAFETY: the caller's promise.
            return unsafe { System.alloc(layout) };
        }
        // SAFETY: the pointer is set once, at load. The server aligns to 16
        // bytes at the least, and a size that is a multiple of a larger
        // alignment is aligned to that by jemalloc's size classes.
        unsafe {
            match raw::RedisModule_Alloc {
                Some(alloc) => alloc(layout.pad_to_align().size()).cast(),
                None => System.alloc(layout),
            }
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if IS_MIRI {
            // SAFETY: the caller's promise, and the block is from the system.
            return unsafe { System.dealloc(block, layout) };
        }
        // SAFETY: the caller hands back a block of `alloc`, which asked the same allocator.
        unsafe {
            match raw::RedisModule_Free {
                Some(free) => free(block.cast()),
                None => System.dealloc(block, layout),
            }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if IS_MIRI {
            // SAFETY: the caller's promise, and the block is from the system.
            return unsafe { System.realloc(block, layout, size) };
        }
        // SAFETY: the caller hands back a block of `alloc`, which asked the same allocator. The
        // server's realloc aligns to 16 bytes and no more: larger alignments are copied.
        unsafe {
            match raw::RedisModule_Realloc {
                Some(realloc) if layout.align() <= 16 => realloc(block.cast(), size).cast(),
                Some(_) => {
                    let new = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
                    if !new.is_null() {
                        std::ptr::copy_nonoverlapping(block, new, layout.size().min(size));
                        self.dealloc(block, layout);
                    }
                    new
                }
                None => System.realloc(block, layout, size),
            }
        }
    }
}
