#include "probe/texts.h"

#include <string.h>
#include <sys/mman.h>

#include <atomic>

#include "probe/hash.h"

namespace millrace::probe {
namespace {

using record::Record;

KeyTable texts;

}  // namespace

bool KeyTable::prepare(std::uint32_t entries) {
    void* memory =
        ::mmap(nullptr, entries * sizeof *keys_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return false;
    keys_ = static_cast<std::atomic<std::uint64_t>*>(memory);
    mask_ = entries - 1;
    return true;
}

std::uint32_t KeyTable::find(std::uint64_t table_key) const {
    for (std::uint32_t probe = 0; probe < kMostProbes; ++probe) {
        const std::uint32_t at = static_cast<std::uint32_t>(table_key + probe) & mask_;
        const std::uint64_t there = keys_[at].load(std::memory_order_acquire);
        if (there == table_key) return at + 1;
        if (there == 0) return 0;
    }
    return 0;
}

std::uint32_t KeyTable::enter(std::uint64_t table_key, bool& added) {
    added = false;
    for (std::uint32_t probe = 0; probe < kMostProbes; ++probe) {
        const std::uint32_t at = static_cast<std::uint32_t>(table_key + probe) & mask_;
        std::uint64_t there = keys_[at].load(std::memory_order_acquire);
        if (there == 0) added = keys_[at].compare_exchange_strong(there, table_key, std::memory_order_acq_rel);
        if (added || there == table_key) return at + 1;
    }
    return 0;
}

bool prepare_texts() { return texts.prepare(1u << 16); }

std::uint32_t text_number(ThreadState& thread, const char* text, std::size_t size) {
    if (size > record::kMaxTextBytes) size = record::kMaxTextBytes;
    const std::uint64_t key = hash_bytes(text, size) | 1;
    if (const std::uint32_t known = texts.find(key)) return known;
    Record slots[1 + record::kMaxTextBytes / sizeof(Record)];
    const auto count = static_cast<std::uint32_t>(1 + (size + sizeof(Record) - 1) / sizeof(Record));
    // A thread that enters a text must be able to write it: others use its number from then on.
    if (!has_room(thread, count + 1)) return 0;
    bool added = false;
    const std::uint32_t number = texts.enter(key, added);
    if (!added) return number;
    ::memset(static_cast<void*>(slots), 0, count * sizeof(Record));
    slots[0].kind = record::RecordKind::kText;
    slots[0].thread = thread.thread;
    slots[0].id = number;
    slots[0].bytes = size;
    ::memcpy(static_cast<void*>(slots + 1), text, size);
    append(thread, slots, count);
    return number;
}

std::uint32_t text_number(ThreadState& thread, const char* text) { return text_number(thread, text, ::strlen(text)); }

}  // namespace millrace::probe
