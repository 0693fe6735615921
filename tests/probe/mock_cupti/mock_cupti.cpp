// A stand-in for libcupti that hears of calls and work from the stand-in for CUDA (mock_cuda). Built twice: as CUPTI 13, and with
// MOCK_CUPTI_OLD as an early CUPTI 12, which has smaller records, its own clock (CLOCK_REALTIME) and no names of subscribers.
// As CUPTI does, it gives calls inside of calls the number of the outer one by counting begins and ends per thread, and loses
// count when a kind of call is switched off before its end. When it is finalised it gives back memory that calls which are under
// way still use. At the process's end its destructors run, after which a client that still uses it ends the process (SIGABRT).
//
//   MOCK_CUPTI_INCUMBENT=NAME   somebody else has subscribed already
//   MOCK_CUPTI_FAIL=NAME=CODE   one function answers with a code: subscribe, enable_callback, activity_enable, finalize
//   MOCK_CUPTI_FINALIZE_MS=400  how long it takes to be finalised (0)
//   MOCK_CUPTI_LAZY=1           it makes more state, with a destructor, when the first work of a window arrives
//   MOCK_CUPTI_LATE_MS=300      work of a window is done, and can be flushed, so long after records went off (0)

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <atomic>
#include <mutex>
#include <string>

#include "mock_cuda/mock_cuda.h"
#include "probe/cupti_abi.h"

namespace millrace::mock {
namespace {

using namespace millrace::probe;

#ifdef MOCK_CUPTI_OLD
constexpr std::size_t kKernelBytes = 208, kCopyBytes = 88, kSetBytes = 88;
constexpr std::uint32_t kVersion = 18;
#else
constexpr std::size_t kKernelBytes = 216, kCopyBytes = 96, kSetBytes = 88;
constexpr std::uint32_t kVersion = 130001;
#endif

struct Cupti {
    std::mutex lock;  // of buffers
    std::atomic<CuptiCallback> callback = nullptr;
    void* user = nullptr;
    std::atomic<bool> enabled[3][1024] = {};
    std::atomic<bool> activity[64] = {};
    CuptiBufferRequest request = nullptr;
    CuptiBufferComplete complete = nullptr;
    CuptiClock clock = nullptr;
    std::uint8_t* buffer = nullptr;
    std::size_t size = 0, used = 0, dropped = 0;
    std::atomic<std::uint64_t> callbacks{0};
    std::atomic<std::uint32_t> correlations{0}, missed{0}, delay_ms{0};
    std::atomic<std::int32_t> giving{0};  // threads inside of calls that give the device work
    std::atomic<std::uint32_t> switched_inside{0}, finalised{0};
    std::atomic<std::uint64_t> switched_off{0};
    std::atomic<bool> is_going{false};
    std::atomic<std::uint64_t*> session{nullptr};  // what calls use, whether or not anybody hears of them
    std::atomic<std::uint32_t> spoiled{0}, finalised_inside{0}, disturbed{0};
} cupti;

std::atomic<bool> is_destroyed{false};
struct Destructor {
    ~Destructor() { is_destroyed = true; }
};
const Destructor of_library;  // runs before whatever was registered with atexit() before the library was loaded

/// At the begin of each call of a client.
void check_alive() {
    if (is_destroyed) ::abort();
}

constexpr std::uint64_t kSound = 0x5e5510;
thread_local bool is_telling = false;
int subscriber_object = 0;

int failure_of(const char* function) {
    const char* wanted = ::getenv("MOCK_CUPTI_FAIL");
    const std::string key = std::string(function) + "=";
    return wanted != nullptr && std::string(wanted).rfind(key, 0) == 0 ? ::atoi(wanted + key.size()) : 0;
}

std::uint64_t time_now() {
    if (cupti.clock != nullptr) return cupti.clock();
    timespec at;
    ::clock_gettime(CLOCK_REALTIME, &at);
    return static_cast<std::uint64_t>(at.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(at.tv_nsec);
}

std::uint64_t monotonic_ms() {
    timespec at;
    ::clock_gettime(CLOCK_MONOTONIC, &at);
    return static_cast<std::uint64_t>(at.tv_sec) * 1000 + static_cast<std::uint64_t>(at.tv_nsec) / 1'000'000;
}

void sleep_ms(std::uint32_t milliseconds) {
    const timespec time{milliseconds / 1000, static_cast<long>(milliseconds % 1000) * 1'000'000};
    ::nanosleep(&time, nullptr);
}

/// What CUPTI thinks a thread is inside of.
thread_local std::uint32_t depth = 0, correlation = 0;

/// For the sake of activities it listens to launches of the driver, too, whatever the client wants to hear.
bool is_traced(const CallEvent& event) {
    constexpr std::uint32_t kLaunch = 307;
    return cupti.activity[kActivityKernel] && event.domain == kDriverDomain && event.number == kLaunch;
}

bool gives_work(const CallEvent& event) {
    if (event.domain == kDriverDomain) return event.number == 307;  // a launch
    return event.number == 211 || event.number == 311 || event.number == 41 ||
           event.number == 51;  // and of graphs, a copy, a set
}

void tell_call(CallEvent& event) {
    const CuptiCallback client = cupti.enabled[event.domain][event.number] ? cupti.callback.load() : nullptr;
    if (client == nullptr && event.is_exit && event.watched && !is_traced(event)) ++cupti.missed;
    if ((client == nullptr && !is_traced(event)) || (event.is_exit && !event.watched)) return;
    if (!event.is_exit && depth++ == 0) correlation = ++cupti.correlations;
    if (event.is_exit) --depth;
    event.watched = true;
    if (client == nullptr) return;
    if (const std::uint32_t delay = cupti.delay_ms; delay > 0 && !event.is_exit) sleep_ms(delay);
    CuptiCall data{};
    data.site = event.is_exit ? kExit : kEnter;
    data.function = event.name;
    data.parameters = event.parameters;
    data.result = event.is_exit ? event.result : nullptr;
    data.symbol = event.symbol;
    data.context = event.context;
    data.context_number = 1;
    data.kept = event.kept;
    data.correlation = correlation;
    ++cupti.callbacks;
    is_telling = true;
    client(cupti.user, event.domain, event.number, &data);
    is_telling = false;
}

void on_call(CallEvent& event) {
    thread_local std::uint32_t giving = 0;
    if (!event.is_exit) event.session = cupti.session;
    if (event.is_exit && event.session != nullptr && *static_cast<volatile std::uint64_t*>(event.session) != kSound)
        ++cupti.spoiled;
    const bool counts = gives_work(event);
    // Whether or not anybody hears of it, and without the time in which the client decides whether it may begin.
    if (counts && event.is_exit && giving > 0 && --giving == 0) --cupti.giving;
    tell_call(event);
    if (counts && !event.is_exit && giving++ == 0) ++cupti.giving;
    if (counts && !event.is_exit && cupti.is_going) ++cupti.disturbed;
}

void note_switch() {
    if (cupti.giving > 0) ++cupti.switched_inside;
}

/// Hands the buffer to the client; the lock is not held then, as the client may take its time.
void deliver(std::unique_lock<std::mutex>& lock) {
    std::uint8_t* buffer = cupti.buffer;
    const std::size_t size = cupti.size, used = cupti.used;
    cupti.buffer = nullptr;
    cupti.used = cupti.size = 0;
    lock.unlock();
    if (buffer != nullptr) cupti.complete(nullptr, 0, buffer, size, used);
    lock.lock();
}

template <class Value>
void put(std::uint8_t* record, std::size_t offset, Value value) {
    ::memcpy(record + offset, &value, sizeof value);
}

void on_work(const WorkEvent& event) {
    const std::uint32_t kinds[] = {kActivityKernel, kActivityMemcpy, kActivityMemset};
    const std::size_t sizes[] = {kKernelBytes, kCopyBytes, kSetBytes};
    const auto index = static_cast<std::uint32_t>(event.work);
    if (!cupti.activity[kinds[index]]) return;
    if (::getenv("MOCK_CUPTI_LAZY") != nullptr) static const Destructor of_work;
    std::unique_lock<std::mutex> lock(cupti.lock);
    if (cupti.buffer != nullptr && cupti.used + sizes[index] > cupti.size) deliver(lock);
    std::size_t most = 0;
    if (cupti.buffer == nullptr) cupti.request(&cupti.buffer, &cupti.size, &most);
    if (cupti.buffer == nullptr) {
        ++cupti.dropped;
        return;
    }
    std::uint8_t* record = cupti.buffer + cupti.used;
    cupti.used += sizes[index];
    ::memset(record, 0, sizes[index]);
    put(record, 0, kinds[index]);
    const std::uint32_t number = depth > 0 ? correlation : ++cupti.correlations;
    const std::uint64_t start = time_now() + event.queued_ns, end = start + event.running_ns;
    if (event.work == Work::kKernel) {
        put(record, kernel_at::kStart, start);
        put(record, kernel_at::kEnd, end);
        put(record, kernel_at::kStream, event.stream);
        ::memcpy(record + kernel_at::kGrid, event.sizes, sizeof event.sizes);
        put(record, kernel_at::kRegisters, std::uint16_t{40});
        put(record, kernel_at::kStaticShared, std::uint32_t{1024});
        put(record, kernel_at::kDynamicShared, std::uint32_t{512});
        put(record, kernel_at::kCorrelation, number);
        put(record, kernel_at::kName, event.name);
        put(record, kernel_at::kNode, event.node);
    } else {  // the fields of copies and sets that are used lie at the same places
        put(record, copy_at::kBytes, event.bytes);
        put(record, copy_at::kStart, start);
        put(record, copy_at::kEnd, end);
        put(record, copy_at::kStream, event.stream);
        put(record, copy_at::kCorrelation, number);
        if (event.work == Work::kCopy) {
            put(record, copy_at::kFrom, static_cast<std::uint8_t>(event.from));
            put(record, copy_at::kTo, static_cast<std::uint8_t>(event.to));
        } else {
            put(record, set_at::kMemory, static_cast<std::uint16_t>(event.to));
        }
    }
}

void forget_callbacks() {
    for (auto& domain : cupti.enabled)
        for (auto& call : domain) call = false;
}

int subscribe(void** subscriber, CuptiCallback callback, void* user) {
    if (const int failure = failure_of("subscribe")) return failure;
    if (::getenv("MOCK_CUPTI_INCUMBENT") != nullptr || cupti.callback != nullptr) return kCuptiOtherSubscriber;
    void* cuda = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    auto set_hooks = reinterpret_cast<void (*)(const Hooks*)>(::dlsym(cuda, "mock_cuda_set_hooks"));
    if (set_hooks == nullptr) return 15;
    if (cupti.session == nullptr) cupti.session = static_cast<std::uint64_t*>(::malloc(sizeof kSound));
    *cupti.session = kSound;
    cupti.callback = callback;
    cupti.user = user;
    const Hooks hooks{on_call, on_work};
    set_hooks(&hooks);
    *subscriber = &subscriber_object;
    return kCuptiSuccess;
}

}  // namespace
}  // namespace millrace::mock

using namespace millrace::mock;
using namespace millrace::probe;

extern "C" {

/// How many callbacks were made.
std::uint64_t mock_cupti_callbacks() { return ::millrace::mock::cupti.callbacks; }

/// How many ends of calls were missed, as what had begun was switched off.
std::uint32_t mock_cupti_missed() { return ::millrace::mock::cupti.missed; }

/// How often records of some kind went on or off while a thread was inside of a call that gives the device work.
std::uint32_t mock_cupti_switched_inside() { return ::millrace::mock::cupti.switched_inside; }

/// How often it was finalised.
std::uint32_t mock_cupti_finalised() { return ::millrace::mock::cupti.finalised; }

/// How often a call found at its end that its memory was given back.
std::uint32_t mock_cupti_spoiled() { return ::millrace::mock::cupti.spoiled; }

/// How often it was finalised by its own callback.
std::uint32_t mock_cupti_finalised_inside() { return ::millrace::mock::cupti.finalised_inside; }

/// How many calls that give the device work were under way while it went.
std::uint32_t mock_cupti_disturbed() { return ::millrace::mock::cupti.disturbed; }

/// From now on so long passes between the decision to tell of a begin and the telling.
void mock_cupti_delay(std::uint32_t milliseconds) { ::millrace::mock::cupti.delay_ms = milliseconds; }

CuptiResult cuptiGetVersion(std::uint32_t* version) {
    *version = kVersion;
    return kCuptiSuccess;
}

CuptiResult cuptiSubscribe(void** subscriber, CuptiCallback callback, void* user) {
    return subscribe(subscriber, callback, user);
}

CuptiResult cuptiUnsubscribe(void*) {
    check_alive();
    ::millrace::mock::cupti.callback = nullptr;
    forget_callbacks();
    return kCuptiSuccess;
}

CuptiResult cuptiEnableCallback(std::uint32_t enable, void*, std::uint32_t domain, std::uint32_t call) {
    check_alive();
    if (const int failure = failure_of("enable_callback")) return failure;
    ::millrace::mock::cupti.enabled[domain][call] = enable != 0;
    return kCuptiSuccess;
}

CuptiResult cuptiActivityRegisterCallbacks(CuptiBufferRequest request, CuptiBufferComplete complete) {
    ::millrace::mock::cupti.request = request;
    ::millrace::mock::cupti.complete = complete;
    return kCuptiSuccess;
}

CuptiResult cuptiActivityEnable(std::uint32_t kind) {
    check_alive();
    static const Destructor of_activities;  // CUPTI, too, makes some of its state only when it is first needed
    if (const int failure = failure_of("activity_enable")) return failure;
    note_switch();
    ::millrace::mock::cupti.activity[kind] = true;
    return kCuptiSuccess;
}

CuptiResult cuptiActivityDisable(std::uint32_t kind) {
    check_alive();
    note_switch();
    ::millrace::mock::cupti.switched_off = monotonic_ms();
    ::millrace::mock::cupti.activity[kind] = false;
    return kCuptiSuccess;
}

CuptiResult cuptiActivityFlushAll(std::uint32_t) {
    check_alive();
    const char* late = ::getenv("MOCK_CUPTI_LATE_MS");
    if (late != nullptr && monotonic_ms() < ::millrace::mock::cupti.switched_off + ::strtoull(late, nullptr, 10))
        return kCuptiSuccess;
    std::unique_lock<std::mutex> lock(::millrace::mock::cupti.lock);
    deliver(lock);
    return kCuptiSuccess;
}

CuptiResult cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t valid, std::uint8_t** record) {
    std::uint8_t* next = buffer;
    if (*record != nullptr) {
        std::uint32_t kind;
        ::memcpy(&kind, *record, sizeof kind);
        next = *record + (kind == kActivityKernel ? kKernelBytes : kind == kActivityMemcpy ? kCopyBytes : kSetBytes);
    }
    constexpr CuptiResult kNoMore = 12;
    if (next >= buffer + valid) return kNoMore;
    *record = next;
    return kCuptiSuccess;
}

CuptiResult cuptiActivityGetNumDroppedRecords(void*, std::uint32_t, std::size_t* dropped) {
    *dropped = ::millrace::mock::cupti.dropped;
    ::millrace::mock::cupti.dropped = 0;
    return kCuptiSuccess;
}

CuptiResult cuptiGetTimestamp(std::uint64_t* time) {
    *time = time_now();
    return kCuptiSuccess;
}

CuptiResult cuptiGetStreamIdEx(void*, void* stream, std::uint8_t, std::uint32_t* number) {
    *number = static_cast<std::uint32_t>(7 + reinterpret_cast<std::uint64_t>(stream));
    return kCuptiSuccess;
}

/// Fails where it is not given what it should be.
CuptiResult cuptiProfilerInitialize(const void* parameters) {
    std::uint64_t size = 0;
    if (parameters != nullptr) ::memcpy(&size, parameters, sizeof size);
    return size == 16 ? kCuptiSuccess : 1;
}

/// As CUPTI does, it loses what was not flushed, and counts calls anew when it is subscribed to again.
CuptiResult cuptiFinalize() {
    ::millrace::mock::cupti.is_going = true;
    if (::millrace::mock::cupti.giving > 0) ++::millrace::mock::cupti.disturbed;
    if (const char* slow = ::getenv("MOCK_CUPTI_FINALIZE_MS")) sleep_ms(static_cast<std::uint32_t>(::atoi(slow)));
    ::millrace::mock::cupti.is_going = false;
    if (const int failure = failure_of("finalize")) return failure;
    {
        const std::unique_lock<std::mutex> lock(::millrace::mock::cupti.lock);
        ::millrace::mock::cupti.buffer = nullptr;
        ::millrace::mock::cupti.used = ::millrace::mock::cupti.size = 0;
    }
    ::millrace::mock::cupti.correlations = 0;
    ++::millrace::mock::cupti.finalised;
    if (is_telling) ++::millrace::mock::cupti.finalised_inside;
    ::free(::millrace::mock::cupti.session.exchange(nullptr));
    ::millrace::mock::cupti.callback = nullptr;
    forget_callbacks();
    for (auto& kind : ::millrace::mock::cupti.activity) kind = false;
    return kCuptiSuccess;
}

#ifndef MOCK_CUPTI_OLD
CuptiResult cuptiSubscribe_v2(void** subscriber, CuptiCallback callback, void* user, CuptiSubscriberParameters* parameters) {
    if (parameters == nullptr || parameters->size != sizeof *parameters) return 1;
    const char* incumbent = ::getenv("MOCK_CUPTI_INCUMBENT");
    if (incumbent != nullptr) ::strncpy(parameters->incumbent, incumbent, parameters->incumbent_size - 1);
    return subscribe(subscriber, callback, user);
}

CuptiResult cuptiActivityRegisterTimestampCallback(CuptiClock clock) {
    ::millrace::mock::cupti.clock = clock;
    return kCuptiSuccess;
}
#endif
}
