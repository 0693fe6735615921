#include "ops/cuda/region.h"

#include "ops/cuda/device.cuh"

namespace millrace::ops::cuda {
namespace {

__global__ void condition_kernel(cudaGraphConditionalHandle handle, Mat<const std::int32_t> flags, int members) {
    begin_kernel();
    bool wanted = false;
    for (int k = 0; k < members; ++k) wanted = wanted || *flags.row(k, 0, 0) != 0;
    cudaGraphSetConditional(handle, wanted ? 1 : 0);
}

class Region final : public Kernel {
public:
    Region(Context& c, const RegionStream& region, const tensor::Operand& flags, std::vector<KernelPtr> kernels)
        : context_(c), region_(region), flags_(flags), inner_(std::move(kernels)) {}

    void run() noexcept override {
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
        (void)cudaStreamIsCapturing(context_.stream, &status);
        if (status == cudaStreamCaptureStatusActive) {
            note(capture());
            return;
        }
        region_.enter(context_.stream);
        run_inner();
        region_.leave(context_.stream);
    }

private:
    /// Products take the stream from the context when they run, the other kernels when they are prepared.
    void run_inner() noexcept {
        const cudaStream_t main = context_.stream;
        context_.stream = region_.stream();
        for (const KernelPtr& kernel : inner_) kernel->run();
        context_.stream = main;
    }

    cudaError_t capture() noexcept {
        const cudaStream_t main = context_.stream;
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
        cudaGraph_t graph = nullptr;
        auto ask = [&](const cudaGraphNode_t** nodes, std::size_t* count) {
            return cudaStreamGetCaptureInfo(main, &status, nullptr, &graph, nodes, nullptr, count);
        };
        if (auto code = ask(nullptr, nullptr); code != cudaSuccess) return code;
        cudaGraphConditionalHandle handle{};
        if (auto code = cudaGraphConditionalHandleCreate(&handle, graph, 0, 0); code != cudaSuccess) return code;
        launch(condition_kernel, dim3(1), dim3(1), 0, main, handle, flags_, flags_.k);
        const cudaGraphNode_t* before = nullptr;
        std::size_t count = 0;
        if (auto code = ask(&before, &count); code != cudaSuccess) return code;
        cudaGraphNodeParams params{};
        params.type = cudaGraphNodeTypeConditional;
        params.conditional.handle = handle;
        params.conditional.type = cudaGraphCondTypeIf;
        params.conditional.size = 1;
        cudaGraphNode_t node = nullptr;
        if (auto code = cudaGraphAddNode(&node, graph, before, nullptr, count, &params); code != cudaSuccess) return code;
        if (auto code = cudaStreamUpdateCaptureDependencies(main, &node, nullptr, 1, cudaStreamSetCaptureDependencies);
            code != cudaSuccess)
            return code;
        cudaGraph_t body = params.conditional.phGraph_out[0];
        if (auto code =
                cudaStreamBeginCaptureToGraph(region_.stream(), body, nullptr, nullptr, 0, cudaStreamCaptureModeThreadLocal);
            code != cudaSuccess)
            return code;
        run_inner();
        return cudaStreamEndCapture(region_.stream(), &body);
    }

    /// A failed capture leaves the stream's own capture invalid, which its end reports; the first reason is kept for the message.
    void note(cudaError_t code) noexcept {
        if (code != cudaSuccess && context_.capture_error == cudaSuccess) context_.capture_error = code;
    }

    Context& context_;
    const RegionStream& region_;
    tensor::Operand flags_;
    std::vector<KernelPtr> inner_;
};

}  // namespace

base::Result<std::unique_ptr<RegionStream>> RegionStream::make() {
    auto made = std::make_unique<RegionStream>();
    MILLRACE_TRY(check_cuda(cudaStreamCreateWithFlags(&made->stream_, cudaStreamNonBlocking), "creating a stream"));
    MILLRACE_TRY(check_cuda(cudaEventCreateWithFlags(&made->event_, cudaEventDisableTiming), "creating an event"));
    return base::Result<std::unique_ptr<RegionStream>>(std::move(made));
}

RegionStream::~RegionStream() {
    if (event_) (void)cudaEventDestroy(event_);
    if (stream_) (void)cudaStreamDestroy(stream_);
}

void RegionStream::enter(cudaStream_t main) const {
    (void)cudaEventRecord(event_, main);
    (void)cudaStreamWaitEvent(stream_, event_, 0);
}

void RegionStream::leave(cudaStream_t main) const {
    (void)cudaEventRecord(event_, stream_);
    (void)cudaStreamWaitEvent(main, event_, 0);
}

KernelPtr make_region(Context& c, const RegionStream& region, const tensor::Operand& flags, std::vector<KernelPtr> kernels) {
    return std::make_unique<Region>(c, region, flags, std::move(kernels));
}

}  // namespace millrace::ops::cuda
