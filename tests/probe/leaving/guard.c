// To be preloaded (LD_PRELOAD) into a program that CUPTI leaves: shows when somebody goes on with memory that libcupti has given
// back. Only what libcupti itself allocates is treated, by the place that the call comes from; whoever frees it.
//
//   MILLRACE_GUARD=poison  what is freed is filled with 0xa5, kept until 16,384 further pieces or 64 MiB were freed, and looked
//                          at once more before it is really given back: the process aborts where somebody has written to it
//   MILLRACE_GUARD=fence   pieces below 1 MiB lie at the end of pages of their own, which are taken away for good when they are
//                          freed: whoever touches them, or reads behind their end, is killed at once
//
// A crash is told on the standard error with the places that led there, and at the end how many pieces were treated. Before the
// constructor has run, and where a piece cannot be treated, memory is the C library's.

#define _GNU_SOURCE
#include <errno.h>
#include <execinfo.h>
#include <link.h>
#include <malloc.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);

#define CALLER ((uintptr_t)__builtin_return_address(0))

enum { kAlignment = 16, kPlaces = 32 };

static enum { kOff, kPoison, kFence } watch;

static void tell_and_die(const char* what, const void* memory) {
    char text[256];
    void* places[kPlaces];
    const int length = snprintf(text, sizeof text, "guard: %s, at %p, from\n", what, memory);
    if (write(STDERR_FILENO, text, (size_t)length) < 0) abort();
    backtrace_symbols_fd(places, backtrace(places, kPlaces), STDERR_FILENO);
    signal(SIGABRT, SIG_DFL);
    abort();
}

static atomic_uintptr_t code_begin, code_end;  // of libcupti; zero until it was seen
static atomic_ullong loads_seen;               // how many libraries had been loaded when it was looked for last

struct Look {
    unsigned long long seen, now;
    uintptr_t begin, end;
};

static int look_at(struct dl_phdr_info* info, size_t size, void* data) {
    struct Look* look = data;
    (void)size;
    look->now = info->dlpi_adds;
    if (look->now == look->seen) return 1;  // nothing has come
    const char* name = info->dlpi_name != NULL ? info->dlpi_name : "";
    const char* folder_end = strrchr(name, '/');
    if (strncmp(folder_end != NULL ? folder_end + 1 : name, "libcupti", 8) != 0) return 0;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const ElfW(Phdr)* part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || (part->p_flags & PF_X) == 0) continue;
        look->begin = info->dlpi_addr + part->p_vaddr;
        look->end = look->begin + part->p_memsz;
    }
    return 1;
}

/// Whether a call from there is to be treated. No lock of ours is held: the loader's is taken.
static int counts(uintptr_t caller) {
    if (watch == kOff) return 0;
    uintptr_t end = atomic_load_explicit(&code_end, memory_order_acquire);
    if (end == 0) {
        struct Look look = {.seen = atomic_load(&loads_seen)};
        dl_iterate_phdr(look_at, &look);
        if (look.end == 0) {
            atomic_store(&loads_seen, look.now);
            return 0;
        }
        atomic_store(&code_begin, look.begin);
        atomic_store_explicit(&code_end, end = look.end, memory_order_release);
    }
    return caller >= atomic_load_explicit(&code_begin, memory_order_relaxed) && caller < end;
}

// Poison: the last sixteen bytes of a piece say that it is ours, and how long it is.

enum { kPattern = 0xa5, kTail = 16, kKept = 16384 };
static const uint64_t kMark = 0x6d696c6c72616365, kPatternWord = 0xa5a5a5a5a5a5a5a5;
static const size_t kKeptBytes = (size_t)64 << 20;

static struct {
    atomic_flag busy;
    unsigned char* pieces[kKept];
    unsigned first, count;
    size_t bytes;
} kept = {.busy = ATOMIC_FLAG_INIT};

static uint64_t* tail_of(void* memory) { return (uint64_t*)((char*)memory + malloc_usable_size(memory) - kTail); }

static void* take_poison(size_t size, size_t alignment) {
    if (size > PTRDIFF_MAX - kTail) return NULL;
    void* memory = alignment > kAlignment ? __libc_memalign(alignment, size + kTail) : __libc_malloc(size + kTail);
    if (memory == NULL) return NULL;
    uint64_t* tail = tail_of(memory);
    tail[0] = size ^ kMark;
    tail[1] = (uintptr_t)memory ^ kMark;
    return memory;
}

static int is_poison(void* memory) {
    if (watch != kPoison || malloc_usable_size(memory) < kTail) return 0;
    const uint64_t* tail = tail_of(memory);
    if (tail[0] == kPatternWord && tail[1] == kPatternWord) tell_and_die("memory of libcupti freed twice", memory);
    return tail[1] == ((uintptr_t)memory ^ kMark);
}

/// Nobody has written to it since it was freed.
static void release(unsigned char* memory) {
    const size_t size = malloc_usable_size(memory);
    for (size_t i = 0; i < size; ++i)
        if (memory[i] != kPattern) tell_and_die("memory of libcupti written after it was freed", memory + i);
    memset(memory, 0, size);  // no piece of somebody else's shall look like one of ours
    __libc_free(memory);
}

static void give_poison(unsigned char* memory) {
    const size_t size = malloc_usable_size(memory);
    unsigned char* old[64];  // more than one where a large piece takes the room of small ones
    unsigned olds = 0;
    memset(memory, kPattern, size);
    while (atomic_flag_test_and_set_explicit(&kept.busy, memory_order_acquire)) usleep(1);
    while (kept.count > 0 && olds < 64 && (kept.count == kKept || kept.bytes + size > kKeptBytes)) {
        old[olds] = kept.pieces[kept.first];
        kept.bytes -= malloc_usable_size(old[olds++]);
        kept.first = (kept.first + 1) % kKept;
        --kept.count;
    }
    kept.pieces[(kept.first + kept.count++) % kKept] = memory;
    kept.bytes += size;
    atomic_flag_clear_explicit(&kept.busy, memory_order_release);
    for (unsigned i = 0; i < olds; ++i) release(old[i]);
}

// Fence: pages out of one region, never used twice.

enum { kMostLive = 25000 };  // each splits the region twice; a process has 65,530 mappings
static const size_t kLargest = (size_t)1 << 20;

static char* region;
static size_t region_size = (size_t)256 << 30;  // less where that is too much
static atomic_size_t region_used;
static atomic_int live;
static size_t page;

struct Head {  // right before the piece
    char* begin;
    size_t size;
};

static int is_fence(const void* memory) {
    return region != NULL && (const char*)memory >= region && (const char*)memory < region + region_size;
}
static struct Head* head_of(void* memory) { return (struct Head*)memory - 1; }
static char* end_of(const struct Head* head) { return (char*)(((uintptr_t)(head + 1) + head->size + page - 1) / page * page); }

static void* take_fence(size_t size, size_t alignment) {
    if (size == 0) size = 1;
    if (size >= kLargest || alignment > page || atomic_load(&region_used) > region_size - 4 * kLargest) return NULL;
    if (atomic_fetch_add(&live, 1) >= kMostLive) {
        atomic_fetch_sub(&live, 1);
        return NULL;
    }
    const size_t bytes = (size + alignment + sizeof(struct Head) + page - 1) / page * page;
    char* begin = region + atomic_fetch_add(&region_used, bytes + page);  // one page behind is never there
    if (mprotect(begin, bytes, PROT_READ | PROT_WRITE) != 0) {
        atomic_fetch_sub(&live, 1);
        return NULL;
    }
    void* memory = (void*)((uintptr_t)(begin + bytes - size) / alignment * alignment);
    *head_of(memory) = (struct Head){begin, size};
    return memory;
}

static void give_fence(void* memory) {
    const struct Head head = *head_of(memory);  // ends here where it was freed before
    const size_t bytes = (size_t)(end_of(head_of(memory)) - head.begin);
    if (mmap(head.begin, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        mprotect(head.begin, bytes, PROT_NONE);
    atomic_fetch_sub(&live, 1);
}

static atomic_ulong treated;

static void* take(size_t size, size_t alignment, uintptr_t caller) {
    void* memory = NULL;
    if (counts(caller)) memory = watch == kPoison ? take_poison(size, alignment) : take_fence(size, alignment);
    if (memory != NULL) {
        atomic_fetch_add_explicit(&treated, 1, memory_order_relaxed);
        return memory;
    }
    return alignment > kAlignment ? __libc_memalign(alignment, size) : __libc_malloc(size);
}

void* malloc(size_t size) { return take(size, kAlignment, CALLER); }

void free(void* memory) {
    const int error = errno;
    if (memory == NULL) return;
    if (is_fence(memory))
        give_fence(memory);
    else if (is_poison(memory))
        give_poison(memory);
    else
        __libc_free(memory);
    errno = error;
}

void* calloc(size_t count, size_t size) {
    const uintptr_t caller = CALLER;
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || !counts(caller)) return __libc_calloc(count, size);
    void* memory = take(bytes, kAlignment, caller);
    return memory != NULL ? memset(memory, 0, bytes) : NULL;
}

void* realloc(void* memory, size_t size) {
    const uintptr_t caller = CALLER;
    if (memory == NULL) return take(size, kAlignment, caller);
    const int fenced = is_fence(memory), poisoned = !fenced && is_poison(memory);
    if (!fenced && !poisoned && (size == 0 || !counts(caller))) return __libc_realloc(memory, size);
    void* other = size > 0 ? take(size, kAlignment, caller) : NULL;
    if (size > 0 && other == NULL) return NULL;
    const size_t before = fenced ? head_of(memory)->size : poisoned ? tail_of(memory)[0] ^ kMark : malloc_usable_size(memory);
    if (other != NULL) memcpy(other, memory, before < size ? before : size);
    free(memory);
    return other;
}

void* memalign(size_t alignment, size_t size) { return take(size, alignment < kAlignment ? kAlignment : alignment, CALLER); }
void* aligned_alloc(size_t alignment, size_t size) { return take(size, alignment < kAlignment ? kAlignment : alignment, CALLER); }

int posix_memalign(void** memory, size_t alignment, size_t size) {
    if (alignment % sizeof(void*) != 0 || alignment == 0 || (alignment & (alignment - 1)) != 0) return EINVAL;
    const int error = errno;
    void* taken = take(size, alignment < kAlignment ? kAlignment : alignment, CALLER);
    errno = error;
    if (taken == NULL) return ENOMEM;
    *memory = taken;
    return 0;
}

char* strdup(const char* text) {
    const size_t bytes = strlen(text) + 1;
    char* copy = take(bytes, kAlignment, CALLER);
    return copy != NULL ? memcpy(copy, text, bytes) : NULL;
}

/// The default comes back, so that the process ends as it would have.
static void on_crash(int number, siginfo_t* info, void* context) {
    char text[256];
    void* places[kPlaces];
    (void)context;
    signal(number, SIG_DFL);
    const int length = snprintf(text, sizeof text, "guard: signal %d at %p%s, from\n", number, info->si_addr,
                                is_fence(info->si_addr) ? ", memory of libcupti that is freed, or behind its end" : "");
    if (write(STDERR_FILENO, text, (size_t)length) < 0) return;
    backtrace_symbols_fd(places, backtrace(places, kPlaces), STDERR_FILENO);
    if (info->si_code <= 0) raise(number);  // sent by somebody: it does not come again by itself
}

__attribute__((constructor)) static void begin(void) {
    const char* wanted = getenv("MILLRACE_GUARD");
    if (wanted == NULL) return;
    void* places[2];
    backtrace(places, 2);  // loads what it needs
    struct sigaction action = {.sa_sigaction = on_crash, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    page = (size_t)sysconf(_SC_PAGESIZE);
    if (strcmp(wanted, "poison") == 0) watch = kPoison;
    if (strcmp(wanted, "fence") != 0) return;
    void* all = MAP_FAILED;
    for (; all == MAP_FAILED && region_size >= (size_t)1 << 30; region_size /= all == MAP_FAILED ? 2 : 1)
        all = mmap(NULL, region_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) {
        fprintf(stderr, "guard: no room for fences: %s\n", strerror(errno));
        _exit(97);
    }
    region = all;
    watch = kFence;
}

__attribute__((destructor)) static void end(void) {
    char text[64];
    const int length = snprintf(text, sizeof text, "guarded %lu pieces\n", atomic_load(&treated));
    if (watch != kOff && write(STDERR_FILENO, text, (size_t)length) < 0) watch = kOff;
}
