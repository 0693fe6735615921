#include "probe/arguments.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "probe/hash.h"
#include "probe/log.h"
#include "probe/ranges.h"
#include "probe/texts.h"

namespace millrace::probe {
namespace {

using record::Argument;
using record::kMaxArguments;
using record::Record;

constexpr std::uint32_t kMostParameters = 64, kMostParameterBytes = 4096, kFunctions = 1u << 13;

/// Places and sizes of a function's parameters.
struct Signature {
    std::atomic<std::uint32_t> ready;  ///< 1: the rest is valid
    std::uint32_t count;
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
    auto* handle = reinterpret_cast<void*>(function);
    int refusal = ask(signature, cupti.function_parameter, handle);
    if (signature.count == 0 && cupti.kernel_parameter != nullptr) refusal = ask(signature, cupti.kernel_parameter, handle);
    if (signature.count == 0) log_line("no parameters of %.200s: %d", name, refusal);
    signature.ready.store(1, std::memory_order_release);
    return &signature;
}

}  // namespace

bool prepare_arguments() {
    void* memory = ::mmap(nullptr, kFunctions * sizeof(Signature), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || !functions.prepare(kFunctions)) return false;
    signatures = static_cast<Signature*>(memory);
    return true;
}

void write_arguments(ThreadState& thread, const Cupti& cupti, std::uint64_t function, const char* name, const void* arguments,
                     std::uint32_t correlation) {
    if (cupti.function_parameter == nullptr || function == 0 || name == nullptr || arguments == nullptr) return;
    const Signature* signature = signature_of(cupti, function, name);
    if (signature == nullptr || signature->count == 0) return;
    Argument found[kMaxArguments];
    std::uint32_t count = 0;
    std::uint64_t hash = signature->count;
    for (std::uint32_t i = 0; i < signature->count; ++i) {
        const char* bytes;
        ::memcpy(&bytes, static_cast<const char*>(arguments) + i * sizeof bytes, sizeof bytes);
        if (bytes == nullptr) return;
        std::uint32_t at = 0;
        for (; at + 8 <= signature->size[i]; at += 8) {
            std::uint64_t word;
            ::memcpy(&word, bytes + at, 8);
            if (count < kMaxArguments - 1u && in_range(word))
                found[count++] = {word, std::uint64_t{signature->offset[i]} + at};
            else
                hash = hash_more(hash, word);
        }
        if (at < signature->size[i]) hash = hash_bytes(bytes + at, signature->size[i] - at, hash);
    }
    found[count++] = {0, hash};
    Record slots[1 + kMaxArguments / 4];
    ::memset(static_cast<void*>(slots), 0, sizeof slots);
    slots[0].kind = record::RecordKind::kArguments;
    slots[0].thread = thread.thread;
    slots[0].correlation = correlation;
    slots[0].count = static_cast<std::uint16_t>(count);
    ::memcpy(static_cast<void*>(slots + 1), found, count * sizeof(Argument));
    append(thread, slots, 1 + (count + 3) / 4);
}

std::uint64_t content_hash(std::uint64_t address, std::uint64_t bytes) {
    constexpr std::uint64_t kPiece = 512, kPieces = 64;
    char content[kPiece * kPieces];
    iovec local{content, sizeof content}, pieces[kPieces];
    std::uint64_t count = kPieces;
    if (bytes <= sizeof content) {
        local.iov_len = bytes;
        pieces[0] = {reinterpret_cast<void*>(address), bytes};
        count = 1;
    } else {
        for (std::uint64_t i = 0; i < kPieces; ++i) {
            const std::uint64_t at = i + 1 == kPieces ? bytes - kPiece : (bytes - kPiece) / (kPieces - 1) * i;
            pieces[i] = {reinterpret_cast<void*>(address + at), kPiece};
        }
    }
    // By way of the kernel: the address is the program's, and may be wrong.
    const ssize_t got = ::process_vm_readv(::getpid(), &local, 1, pieces, count, 0);
    if (got != static_cast<ssize_t>(local.iov_len)) return 0;
    return hash_bytes(content, local.iov_len, bytes) | 1;
}

}  // namespace millrace::probe
