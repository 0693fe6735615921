#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "ops/cuda/context.h"

namespace millrace::ops::cuda {
namespace {

class EventTimeline final : public Timeline {
public:
    explicit EventTimeline(cudaStream_t stream) : stream_(stream) {}
    ~EventTimeline() override {
        release();
        (void)cudaStreamSynchronize(stream_);  // the gate's flag lives here
        for (cudaEvent_t event : events_) (void)cudaEventDestroy(event);
    }

    base::Status create(std::size_t marks) {
        for (std::size_t i = 0; i < marks; ++i) {
            cudaEvent_t event = nullptr;
            MILLRACE_TRY(check_cuda(cudaEventCreate(&event), "creating an event"));
            events_.push_back(event);
        }
        return base::ok();
    }

    void mark(std::size_t index) noexcept override {
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
        (void)cudaStreamIsCapturing(stream_, &status);
        // An external record is a node of the graph; a plain one inside a capture would only order the capture itself.
        (void)cudaEventRecordWithFlags(events_[index], stream_,
                                       status == cudaStreamCaptureStatusNone ? cudaEventRecordDefault : cudaEventRecordExternal);
    }

    base::Result<double> milliseconds(std::size_t from, std::size_t to) override {
        MILLRACE_TRY(check_cuda(cudaEventSynchronize(events_[to]), "waiting for an event"));
        float milliseconds = 0;
        MILLRACE_TRY(
            check_cuda(cudaEventElapsedTime(&milliseconds, events_[from], events_[to]), "reading the time between two events"));
        return static_cast<double>(milliseconds);
    }

    void hold() noexcept override {
        open_.store(false, std::memory_order_release);
        (void)cudaLaunchHostFunc(stream_, wait_at_gate, &open_);
    }
    void release() noexcept override { open_.store(true, std::memory_order_release); }

private:
    /// Runs on a thread of the driver. Gives up after a while: were the queue full, the host would wait for us and we for it.
    static void CUDART_CB wait_at_gate(void* flag) {
        const auto& open = *static_cast<const std::atomic<bool>*>(flag);
        const auto latest = std::chrono::steady_clock::now() + std::chrono::milliseconds{100};
        while (!open.load(std::memory_order_acquire) && std::chrono::steady_clock::now() < latest)
            std::this_thread::sleep_for(std::chrono::microseconds{20});
    }

    cudaStream_t stream_;
    std::vector<cudaEvent_t> events_;
    std::atomic<bool> open_{true};
};

}  // namespace

base::Result<std::unique_ptr<Timeline>> make_timeline(cudaStream_t stream, std::size_t marks) {
    auto timeline = std::make_unique<EventTimeline>(stream);
    MILLRACE_TRY(timeline->create(marks));
    return std::unique_ptr<Timeline>(std::move(timeline));
}

}  // namespace millrace::ops::cuda
