#include "gpu/api_counter.h"

#include <fmt/format.h>

#if defined(MILLRACE_HAVE_CUDA) && __has_include(<cupti.h>)
#define MILLRACE_TEST_CUPTI 1
#include <cupti.h>
#include <dlfcn.h>

#include <array>
#include <thread>
#endif

namespace millrace::testing {

std::string text_of(const CallCounts& counts) {
    std::string text;
    for (const auto& [name, count] : counts) text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", name, count);
    return text.empty() ? "no call" : text;
}

long calls_with(const CallCounts& counts, const std::string& part) {
    long sum = 0;
    for (const auto& [name, count] : counts)
        if (name.find(part) != std::string::npos) sum += count;
    return sum;
}

#ifdef MILLRACE_TEST_CUPTI
namespace {

/// The few functions that are needed. The library stays loaded: CUPTI does not survive being closed.
struct Cupti {
    decltype(&cuptiSubscribe) subscribe = nullptr;
    decltype(&cuptiUnsubscribe) unsubscribe = nullptr;
    decltype(&cuptiEnableDomain) enable_domain = nullptr;

    static base::Result<Cupti> load() {
        const std::array<std::string, 2> names{fmt::format("libcupti.so.{}", CUDA_VERSION / 1000), "libcupti.so"};
        for (const std::string& name : names) {
            void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
            if (library == nullptr) continue;
            Cupti cupti;
            cupti.subscribe = reinterpret_cast<decltype(subscribe)>(dlsym(library, "cuptiSubscribe"));
            cupti.unsubscribe = reinterpret_cast<decltype(unsubscribe)>(dlsym(library, "cuptiUnsubscribe"));
            cupti.enable_domain = reinterpret_cast<decltype(enable_domain)>(dlsym(library, "cuptiEnableDomain"));
            if (cupti.subscribe && cupti.unsubscribe && cupti.enable_domain) return cupti;
            return base::Error{name + " lacks cuptiSubscribe, cuptiUnsubscribe or cuptiEnableDomain"};
        }
        return base::Error{names[0] + " was not found; LD_LIBRARY_PATH may name its folder"};
    }
};

class CuptiCounter final : public ApiCounter {
public:
    explicit CuptiCounter(const Cupti& cupti) : cupti_(cupti) {}
    ~CuptiCounter() override {
        if (subscriber_ != nullptr) (void)cupti_.unsubscribe(subscriber_);
    }

    base::Status subscribe() {
        if (const CUptiResult code = cupti_.subscribe(&subscriber_, on_call, this); code != CUPTI_SUCCESS) {
            subscriber_ = nullptr;
            return base::Error{
                fmt::format("cuptiSubscribe failed with {}; is another profiler attached?", static_cast<int>(code))};
        }
        for (const CUpti_CallbackDomain domain : {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_CB_DOMAIN_DRIVER_API})
            if (const CUptiResult code = cupti_.enable_domain(1, subscriber_, domain); code != CUPTI_SUCCESS)
                return base::Error{fmt::format("cuptiEnableDomain failed with {}", static_cast<int>(code))};
        return base::ok();
    }

    void start() override {
        runtime_.clear();
        driver_.clear();
        thread_ = std::this_thread::get_id();
    }
    void stop() override { thread_ = std::thread::id(); }
    [[nodiscard]] const CallCounts& runtime() const override { return runtime_; }
    [[nodiscard]] const CallCounts& driver() const override { return driver_; }

private:
    // Other threads see an id that is not theirs and leave; the maps belong to the thread that counts.
    static void CUPTIAPI on_call(void* self, CUpti_CallbackDomain domain, CUpti_CallbackId, const void* data) {
        auto& counter = *static_cast<CuptiCounter*>(self);
        const auto& call = *static_cast<const CUpti_CallbackData*>(data);
        if (call.callbackSite != CUPTI_API_ENTER || counter.thread_ != std::this_thread::get_id()) return;
        ++(domain == CUPTI_CB_DOMAIN_RUNTIME_API ? counter.runtime_ : counter.driver_)[call.functionName];
    }

    Cupti cupti_;
    CUpti_SubscriberHandle subscriber_ = nullptr;
    std::thread::id thread_;
    CallCounts runtime_, driver_;
};

}  // namespace

base::Result<std::unique_ptr<ApiCounter>> ApiCounter::create() {
    MILLRACE_LET(cupti, Cupti::load());
    auto counter = std::make_unique<CuptiCounter>(cupti);
    MILLRACE_TRY(counter->subscribe());
    return std::unique_ptr<ApiCounter>(std::move(counter));
}
#else
base::Result<std::unique_ptr<ApiCounter>> ApiCounter::create() { return base::Error{"this build had no CUPTI header (cupti.h)"}; }
#endif

}  // namespace millrace::testing
