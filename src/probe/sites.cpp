#include "probe/sites.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <initializer_list>

#include <atomic>

#include "probe/hash.h"
#include "probe/imports.h"
#include "probe/log.h"
#include "probe/memory.h"
#include "probe/texts.h"
#include "record/python_frames.h"

namespace millrace::probe {
namespace {

using record::kMaxSiteFrames;
using record::PythonFrame;
using record::Record;
using record::SiteFrame;

struct Interpreter {
    void* (*thread_state)() = nullptr;
    int (*finalizing)() = nullptr;
    std::uint64_t runtime = 0, code_type = 0;
    std::uint32_t version = 0;
    record::PythonLayout layout;
};

/// Whether frames may be read directly: only after a walk that asked the kernel for every byte made sense.
enum Trust : int { kUntried, kTrusted, kRefused };

constexpr std::uint32_t kNativeDepth = 32, kMostWaiting = 1024;

/// A native stack that waits to be named.
struct WaitingStack {
    std::atomic<std::uint32_t> site;  ///< 0: not complete yet
    std::uint32_t count;
    void* addresses[kNativeDepth];
};

KeyTable sites;
Interpreter python;
std::atomic<bool> has_python{false}, has_native{false};
std::atomic<int> trust{kUntried};
WaitingStack* waiting = nullptr;
std::atomic<std::uint32_t> waiting_claimed{0};
std::uint32_t waiting_named = 0;

void* scope = RTLD_DEFAULT;  // where the interpreter's symbols are: a program that embeds it may keep them to itself

template <class Function>
bool bind(const char* name, Function& function) {
    void* symbol = ::dlsym(scope, name);
    ::memcpy(&function, &symbol, sizeof symbol);
    return symbol != nullptr;
}

std::uint32_t version_of_interpreter() {
    if (const void* number = ::dlsym(scope, "Py_Version"))
        return static_cast<std::uint32_t>(*static_cast<const unsigned long*>(number));
    const char* (*text)() = nullptr;
    if (!bind("Py_GetVersion", text)) return 0;
    char* end = nullptr;
    const unsigned long major = ::strtoul(text(), &end, 10);
    const unsigned long minor = *end == '.' ? ::strtoul(end + 1, &end, 10) : 0;
    const unsigned long patch = *end == '.' ? ::strtoul(end + 1, &end, 10) : 0;
    return static_cast<std::uint32_t>(major << 24 | minor << 16 | patch << 8 | 0xf0);
}

/// Writes a site and its frames; room for it was made sure of before its key was entered.
void write_site(ThreadState& thread, std::uint32_t number, const SiteFrame* frames, std::uint32_t count) {
    Record slots[1 + kMaxSiteFrames / 4];
    ::memset(static_cast<void*>(slots), 0, sizeof slots);
    slots[0].kind = record::RecordKind::kSite;
    slots[0].thread = thread.thread;
    slots[0].id = number;
    slots[0].count = static_cast<std::uint16_t>(count);
    ::memcpy(static_cast<void*>(slots + 1), frames, count * sizeof *frames);
    append(thread, slots, 1 + (count + 3) / 4);
}

template <class Reader>
bool resolve(Reader& reader, ThreadState& thread, const PythonFrame* frames, std::uint32_t count, SiteFrame* to) {
    for (std::uint32_t i = 0; i < count; ++i) {
        record::PythonPlace place;
        if (!record::python_place(reader, python.layout, frames[i], place)) return false;
        to[i].file = text_number(thread, place.file);
        to[i].function = text_number(thread, place.function);
        to[i].line = place.line;
        to[i].native = 0;
        if (to[i].file == 0 || to[i].function == 0) return false;
    }
    return true;
}

template <class Reader>
std::uint32_t python_site(Reader& reader, ThreadState& thread, std::uint64_t state, bool& has_frames) {
    PythonFrame frames[kMaxSiteFrames];
    const std::uint32_t count = record::python_stack(reader, python.layout, state, frames, kMaxSiteFrames, python.code_type);
    has_frames = count > 0;
    if (count == 0) return 0;
    std::uint64_t key = count;
    for (std::uint32_t i = 0; i < count; ++i) key = hash_more(key ^ frames[i].code, frames[i].instruction);
    key |= 1;
    if (const std::uint32_t known = sites.find(key)) return known;
    SiteFrame resolved[kMaxSiteFrames];
    if (!resolve(reader, thread, frames, count, resolved) || !has_room(thread, 2 + (count + 3) / 4)) return 0;
    bool added = false;
    const std::uint32_t number = sites.enter(key, added);
    if (added) write_site(thread, number, resolved, count);
    return number;
}

/// The site of a thread that runs no Python code: its name stands for it.
std::uint32_t nameless_site(ThreadState& thread) {
    if (thread.nameless_site != 0) return thread.nameless_site;
    char name[32] = "";
    ::prctl(PR_GET_NAME, name);
    SiteFrame frame;
    frame.file = text_number(thread, "[thread]");
    frame.function = text_number(thread, name);
    frame.native = 1;
    if (frame.file == 0 || frame.function == 0 || !has_room(thread, 3)) return 0;
    bool added = false;
    thread.nameless_site = sites.enter(hash_bytes(name, ::strlen(name), 1) | 1, added);
    if (added) write_site(thread, thread.nameless_site, &frame, 1);
    return thread.nameless_site;
}

std::uint32_t native_site() {
    void* addresses[kNativeDepth];
    const int depth = ::backtrace(addresses, kNativeDepth);
    if (depth <= 0) return 0;
    bool added = false;
    const std::uint64_t key = hash_bytes(addresses, static_cast<std::size_t>(depth) * sizeof(void*), 2) | 1;
    if (const std::uint32_t known = sites.find(key)) return known;
    const std::uint32_t number = sites.enter(key, added);
    if (!added) return number;
    const std::uint32_t place = waiting_claimed.fetch_add(1, std::memory_order_relaxed);
    if (place >= kMostWaiting) return number;
    waiting[place].count = static_cast<std::uint32_t>(depth);
    ::memcpy(waiting[place].addresses, addresses, static_cast<std::size_t>(depth) * sizeof(void*));
    waiting[place].site.store(number, std::memory_order_release);
    return number;
}

/// Frames of the probe, of CUPTI and of CUDA's own libraries are no places of the program.
bool is_machinery(const char* path) {
    const char* slash = ::strrchr(path, '/');
    const char* file = slash != nullptr ? slash + 1 : path;
    for (const char* name : {"libmillrace-probe", "cupti", "libcuda.so", "libcudart"})
        if (::strstr(file, name) != nullptr) return true;
    return false;
}

}  // namespace

bool prepare_sites() {
    void* memory = ::mmap(nullptr, kMostWaiting * sizeof(WaitingStack), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || !sites.prepare(1u << 16)) return false;
    waiting = static_cast<WaitingStack*>(memory);
    return true;
}

void find_interpreter() {
    if (has_python.load(std::memory_order_relaxed)) return;
    Interpreter found;
    if (!bind("PyGILState_GetThisThreadState", found.thread_state)) {
        if (void* library = loaded_library("libpython3")) scope = library;
    }
    if (found.thread_state == nullptr && !bind("PyGILState_GetThisThreadState", found.thread_state)) {
        if (!has_native.load(std::memory_order_relaxed)) {
            void* first[1];
            ::backtrace(first, 1);  // the C library loads its unwinder now and not in a callback
            has_native.store(true, std::memory_order_release);
        }
        return;
    }
    if (!bind("Py_IsFinalizing", found.finalizing)) bind("_Py_IsFinalizing", found.finalizing);
    found.runtime = reinterpret_cast<std::uint64_t>(::dlsym(scope, "_PyRuntime"));
    found.code_type = reinterpret_cast<std::uint64_t>(::dlsym(scope, "PyCode_Type"));
    found.version = version_of_interpreter();
    DirectReader reader;
    if (found.runtime != 0) found.layout = record::python_layout(reader, found.runtime, found.version);
    header()->state.python_runtime = found.runtime;
    header()->state.python_version = found.version;
    log_line("interpreter %x: %s", found.version, found.layout.minor != 0 ? "understood" : "not understood, no places");
    python = found;
    has_python.store(true, std::memory_order_release);
}

std::uint32_t site_number(ThreadState& thread) {
    if (!has_python.load(std::memory_order_acquire)) return has_native.load(std::memory_order_acquire) ? native_site() : 0;
    if (python.layout.minor == 0) return 0;
    // While the interpreter goes down it frees what other threads' states point to.
    if (python.finalizing != nullptr && python.finalizing() != 0) return 0;
    const auto state = reinterpret_cast<std::uint64_t>(python.thread_state());
    if (state == 0) return nameless_site(thread);
    bool has_frames = false;
    std::uint32_t number = 0;
    const int trusted = trust.load(std::memory_order_relaxed);
    if (trusted == kTrusted) {
        DirectReader reader;
        number = python_site(reader, thread, state, has_frames);
    } else if (trusted == kUntried) {
        CarefulReader reader;
        if (!has_room(thread, 1024)) return 0;  // with room for all texts a failure can only be due to what was read
        number = python_site(reader, thread, state, has_frames);
        if (number != 0) trust.store(kTrusted, std::memory_order_relaxed);
        if (number == 0 && (has_frames || reader.denied)) {
            trust.store(kRefused, std::memory_order_relaxed);
            log_line("no places: reading stacks %s", reader.denied ? "is not allowed here" : "made no sense");
            return 0;
        }
    } else {
        return 0;
    }
    return has_frames ? number : nameless_site(thread);
}

void name_native_sites(ThreadState& thread) {
    for (; waiting_named < kMostWaiting; ++waiting_named) {
        WaitingStack& stack = waiting[waiting_named];
        const std::uint32_t number = stack.site.load(std::memory_order_acquire);
        if (number == 0) return;
        SiteFrame frames[kNativeDepth];
        std::uint32_t count = 0;
        for (std::uint32_t i = 0; i < stack.count; ++i) {
            Dl_info info;
            ::memset(&info, 0, sizeof info);
            const bool known = ::dladdr(stack.addresses[i], &info) != 0 && info.dli_fname != nullptr;
            if (count == 0 && known && is_machinery(info.dli_fname)) continue;
            const auto address = reinterpret_cast<std::uint64_t>(stack.addresses[i]);
            const std::uint64_t offset = known ? address - reinterpret_cast<std::uint64_t>(info.dli_fbase) : 0;
            frames[count].file = text_number(thread, known ? info.dli_fname : "[unknown]");
            frames[count].function = text_number(thread, known && info.dli_sname != nullptr ? info.dli_sname : "");
            frames[count].line = offset < UINT32_MAX ? static_cast<std::uint32_t>(offset) : 0;
            frames[count++].native = 1;
        }
        write_site(thread, number, frames, count);
    }
}

}  // namespace millrace::probe
