#include "probe/arguments.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>

#include "probe/hash.h"
#include "probe/log.h"
#include "probe/memory.h"
#include "probe/texts.h"

namespace millrace::probe {
namespace {

struct Range {
    std::atomic<std::uint64_t> begin, end;
};

constexpr std::uint32_t kMostRanges = 1u << 15;
constexpr auto kRelaxed = std::memory_order_relaxed;

Range* ranges = nullptr;  // ordered by address
std::atomic<std::uint32_t> count{0};
std::atomic<std::uint32_t> changes{0};  // odd while a thread changes the table

/// Makes the table this thread's to change. Those who hold it do nothing but move entries, so the wait is short; it is bounded
/// all the same, because a thread may be stopped at any place.
bool begin_change() {
    for (int tries = 0; tries < 100'000; ++tries) {
        std::uint32_t even = changes.load(kRelaxed) & ~1u;
        if (changes.compare_exchange_weak(even, even + 1, std::memory_order_acq_rel)) {
            std::atomic_thread_fence(std::memory_order_release);
            return true;
        }
    }
    return false;
}

void end_change() { changes.fetch_add(1, std::memory_order_release); }

/// Number of ranges that begin at or before `address`.
std::uint32_t place_of(std::uint64_t address) {
    std::uint32_t low = 0, high = count.load(kRelaxed);
    while (low < high) {
        const std::uint32_t middle = (low + high) / 2;
        if (ranges[middle].begin.load(kRelaxed) <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void copy(Range& to, const Range& from) {
    to.begin.store(from.begin.load(kRelaxed), kRelaxed);
    to.end.store(from.end.load(kRelaxed), kRelaxed);
}

using record::Argument;
using record::ArgumentFate;
using record::kMaxArguments;
using record::Record;

constexpr std::uint32_t kMostParameters = 64, kMostParameterBytes = 4096, kFunctions = 1u << 13;
constexpr int kNoSuchParameter = 1;  ///< CUDA_ERROR_INVALID_VALUE: the index is beyond the last

/// Places and sizes of a function's parameters.
struct Signature {
    std::atomic<std::uint32_t> ready;  ///< 1: the rest is valid
    std::uint32_t count;
    int refusal;  ///< the driver's answer to the first question
    std::uint16_t offset[kMostParameters], size[kMostParameters];
};

KeyTable functions;
Signature* signatures = nullptr;

/// Asks for one parameter after the other until the driver refuses; returns what it said to the first.
int ask(Signature& signature, int (*parameter)(void*, std::size_t, std::size_t*, std::size_t*), void* handle) {
    for (std::uint32_t i = 0; i < kMostParameters; ++i) {
        std::size_t offset = 0, size = 0;
        const int refusal = parameter(handle, i, &offset, &size);
        if (refusal != 0) return i == 0 ? refusal : 0;
        if (offset + size > kMostParameterBytes) break;
        signature.offset[i] = static_cast<std::uint16_t>(offset);
        signature.size[i] = static_cast<std::uint16_t>(size);
        signature.count = i + 1;
    }
    return 0;
}

/// A handle can come to mean another function after a module was unloaded; with its name it does not.
const Signature* signature_of(const Cupti& cupti, std::uint64_t function, const char* name) {
    bool added = false;
    const std::uint64_t key = hash_bytes(name, ::strlen(name), function) | 1;
    const std::uint32_t entry = functions.enter(key, added);
    if (entry == 0) return nullptr;
    Signature& signature = signatures[entry - 1];
    if (!added) return signature.ready.load(std::memory_order_acquire) != 0 ? &signature : nullptr;
    auto* handle = pointer_to<void>(function);
    signature.refusal = ask(signature, cupti.function_parameter, handle);
    // The runtime launches what libraries hold, and to those the driver answers under another name.
    if (signature.refusal != 0 && cupti.kernel_parameter != nullptr) {
        const int refusal = ask(signature, cupti.kernel_parameter, handle);
        if (refusal == 0 || refusal == kNoSuchParameter) signature.refusal = refusal;
    }
    if (signature.refusal != 0 && signature.refusal != kNoSuchParameter)
        log_line("no parameters of %.200s: %d", name, signature.refusal);
    signature.ready.store(1, std::memory_order_release);
    return &signature;
}

/// Pointers into device memory and a hash of all other bytes; `with_words`: those bytes, too.
struct Found {
    Argument values[kMaxArguments];
    std::uint32_t count = 0;
    std::uint64_t hash = 0;
    bool with_words = false;

    void add(const char* bytes, std::uint32_t size, std::uint32_t offset, std::uint32_t parameter) {
        for (std::uint32_t at = 0; at < size; at += 8) {
            const std::uint32_t width = size - at < 8 ? size - at : 8;
            std::uint64_t word = 0;
            ::memcpy(&word, bytes + at, width);
            const bool pointer = width == 8 && in_range(word), room = count < kMaxArguments - 1u;
            if (!pointer || !room) hash = hash_more(hash, word);
            if (!room || !(pointer || with_words)) continue;
            const std::uint64_t index = record::argument_index(offset + at, parameter, width);
            values[count++] = {word, pointer ? index : index | record::kNoPointer};
        }
    }
};

/// Arguments in one block: keys and pointers in turn, up to the key that ends them.
ArgumentFate read_block(Found& found, const void* block) {
    constexpr int kMostPairs = 4;
    const char* bytes = nullptr;
    std::size_t size = 0;
    for (int i = 0; i < kMostPairs; ++i) {
        std::uint64_t pair[2];
        ::memcpy(pair, static_cast<const char*>(block) + i * sizeof pair, sizeof pair[0]);
        if (pair[0] == launch_at::kBlockEnd) break;
        ::memcpy(pair, static_cast<const char*>(block) + i * sizeof pair, sizeof pair);
        if (pair[0] == launch_at::kBlockPointer) bytes = pointer_to<const char>(pair[1]);
        if (pair[0] == launch_at::kBlockSize) ::memcpy(&size, pointer_to<const void>(pair[1]), sizeof size);
    }
    if (bytes == nullptr || size > kMostParameterBytes) return ArgumentFate::kNotGiven;
    found.hash = size;
    found.add(bytes, static_cast<std::uint32_t>(size), 0, 0);
    return ArgumentFate::kTakenFromBuffer;
}

ArgumentFate read_each(Found& found, const Cupti& cupti, const CallFacts& launch, const char* name) {
    if (cupti.function_parameter == nullptr) return ArgumentFate::kUnknown;
    const Signature* signature = signature_of(cupti, launch.function, name != nullptr ? name : "");
    if (signature == nullptr) return ArgumentFate::kNoRoom;
    if (signature->count == 0) {
        if (signature->refusal == kNoSuchParameter) return ArgumentFate::kNone;
        header()->state.argument_refusal.store(static_cast<std::uint32_t>(signature->refusal), std::memory_order_relaxed);
        return ArgumentFate::kRefused;
    }
    found.hash = signature->count;
    std::uint32_t words = 0;
    for (std::uint32_t i = 0; i < signature->count; ++i) words += (signature->size[i] + 7u) / 8;
    found.with_words = words < kMaxArguments;
    for (std::uint32_t i = 0; i < signature->count; ++i) {
        const char* bytes;
        ::memcpy(&bytes, static_cast<const char*>(launch.arguments) + i * sizeof bytes, sizeof bytes);
        if (bytes == nullptr) return ArgumentFate::kNotGiven;
        found.add(bytes, signature->size[i], signature->offset[i], i);
    }
    return ArgumentFate::kTaken;
}

ArgumentFate read_arguments(Found& found, const Cupti& cupti, const CallFacts& launch, const char* name) {
    if (launch.function == 0) return ArgumentFate::kNotGiven;
    if (launch.arguments != nullptr) return read_each(found, cupti, launch, name);
    return launch.block != nullptr ? read_block(found, launch.block) : ArgumentFate::kNotGiven;
}

}  // namespace

bool prepare_ranges() {
    void* memory =
        ::mmap(nullptr, kMostRanges * sizeof(Range), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return false;
    ranges = static_cast<Range*>(memory);
    return true;
}

void add_range(std::uint64_t address, std::uint64_t bytes) {
    if (bytes == 0 || !begin_change()) return;
    const std::uint32_t held = count.load(kRelaxed), at = place_of(address);
    if (at > 0 && ranges[at - 1].begin.load(kRelaxed) == address) {
        ranges[at - 1].end.store(address + bytes, kRelaxed);
    } else if (held < kMostRanges) {
        for (std::uint32_t i = held; i > at; --i) copy(ranges[i], ranges[i - 1]);
        ranges[at].begin.store(address, kRelaxed);
        ranges[at].end.store(address + bytes, kRelaxed);
        count.store(held + 1, kRelaxed);
    }
    end_change();
}

std::uint64_t remove_range(std::uint64_t address) {
    if (!begin_change()) return 0;
    const std::uint32_t held = count.load(kRelaxed), at = place_of(address);
    std::uint64_t bytes = 0;
    if (at > 0 && ranges[at - 1].begin.load(kRelaxed) == address) {
        bytes = ranges[at - 1].end.load(kRelaxed) - address;
        for (std::uint32_t i = at; i < held; ++i) copy(ranges[i - 1], ranges[i]);
        count.store(held - 1, kRelaxed);
    }
    end_change();
    return bytes;
}

bool in_range(std::uint64_t address) {
    for (int tries = 0; tries < 4; ++tries) {
        const std::uint32_t before = changes.load(std::memory_order_acquire);
        if ((before & 1) != 0) continue;
        const std::uint32_t at = place_of(address);
        const bool inside = at > 0 && address < ranges[at - 1].end.load(kRelaxed);
        std::atomic_thread_fence(std::memory_order_acquire);
        if (changes.load(kRelaxed) == before) return inside;
    }
    return false;
}

bool prepare_arguments() {
    void* memory = ::mmap(nullptr, kFunctions * sizeof(Signature), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || !functions.prepare(kFunctions)) return false;
    signatures = static_cast<Signature*>(memory);
    return true;
}

void write_arguments(ThreadState& thread, const Cupti& cupti, const CallFacts& launch, const char* name,
                     std::uint32_t correlation) {
    Found found;
    const ArgumentFate fate = read_arguments(found, cupti, launch, name);
    header()->state.arguments[static_cast<std::uint32_t>(fate)].fetch_add(1, std::memory_order_relaxed);
    if (fate != ArgumentFate::kTaken && fate != ArgumentFate::kTakenFromBuffer) return;
    found.values[found.count++] = {0, found.hash};
    Record slots[1 + kMaxArguments / 4];
    ::memset(static_cast<void*>(slots), 0, sizeof slots);
    slots[0].kind = record::RecordKind::kArguments;
    slots[0].thread = thread.thread;
    slots[0].correlation = correlation;
    slots[0].count = static_cast<std::uint16_t>(found.count);
    ::memcpy(static_cast<void*>(slots + 1), found.values, found.count * sizeof(Argument));
    append(thread, slots, 1 + (found.count + 3) / 4);
}

std::uint64_t content_hash(std::uint64_t address, std::uint64_t bytes) {
    constexpr std::uint64_t kPiece = 512, kPieces = 64;
    char content[kPiece * kPieces];
    iovec local{content, sizeof content}, pieces[kPieces];
    std::uint64_t count = kPieces;
    if (bytes <= sizeof content) {
        local.iov_len = bytes;
        pieces[0] = {pointer_to<void>(address), bytes};
        count = 1;
    } else {
        for (std::uint64_t i = 0; i < kPieces; ++i) {
            const std::uint64_t at = i + 1 == kPieces ? bytes - kPiece : (bytes - kPiece) / (kPieces - 1) * i;
            pieces[i] = {pointer_to<void>(address + at), kPiece};
        }
    }
    // By way of the kernel: the address is the program's, and may be wrong.
    const ssize_t got = ::process_vm_readv(::getpid(), &local, 1, pieces, count, 0);
    if (got != static_cast<ssize_t>(local.iov_len)) return 0;
    return hash_bytes(content, local.iov_len, bytes) | 1;
}

}  // namespace millrace::probe
