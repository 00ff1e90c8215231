//! The allocator of the static binaries. musl's allocator keeps the memory of a short peak in groups of equal sizes:
//! after the start, which compares the CRDs and opens every connection, 3 MB stayed resident for 0.5 MB in use.
//! dlmalloc joins neighbours and fills holes first. It needs 1.7 MB less and adds 10 kB to the binary. Both serve all
//! threads behind one lock.
//!
//! dlmalloc returns memory to the system only from the end of its heap, and a large text that grows leaves holes
//! behind. So musl serves the large pieces, and gives each a mapping of its own. Such a piece grows without a copy. It
//! occupies only the pages that were written. Freeing it returns them at once.
//!
//! The feature `libc-heap` leaves everything to musl. It is for emulators: when `mremap` shrinks a mapping of a 32-bit
//! program, as dlmalloc does, QEMU's user mode up to 8.0 also unmaps the neighbouring mapping. Linux does not.

use std::alloc::{GlobalAlloc, Layout, System};

use dlmalloc::GlobalDlmalloc;

#[global_allocator]
static HEAP: Heap = Heap;

struct Heap;

impl Heap {
    /// From this size on, musl gives a piece its own mapping (its `MMAP_THRESHOLD` is a little lower).
    const fn is_large(bytes: usize) -> bool {
        bytes >= 128 << 10
    }

    /// Selects the allocator of a piece by its size, which stays the same until the piece is freed or reallocated.
    fn of(bytes: usize) -> &'static dyn GlobalAlloc {
        if Self::is_large(bytes) { &System } else { &GlobalDlmalloc }
    }
}

// SAFETY: the size of a piece selects its allocator, so one allocator serves, changes and frees each piece.
#[expect(unsafe_code, reason = "only the choice between two allocators is our own")]
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those that the selected allocator asks for. The same holds below.
        unsafe { Self::of(layout.size()).alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { Self::of(layout.size()).alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { Self::of(layout.size()).dealloc(piece, layout) }
    }

    unsafe fn realloc(&self, piece: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        if Self::is_large(layout.size()) == Self::is_large(bytes) {
            // SAFETY: as above.
            return unsafe { Self::of(bytes).realloc(piece, layout, bytes) };
        }
        // SAFETY: the caller promises that the size fits a layout of this alignment. The two pieces do not overlap, and
        // the shorter one has that many bytes.
        unsafe {
            let moved = self.alloc(Layout::from_size_align_unchecked(bytes, layout.align()));
            if !moved.is_null() {
                moved.copy_from_nonoverlapping(piece, bytes.min(layout.size()));
                self.dealloc(piece, layout);
            }
            moved
        }
    }
}
