#include "ops/cuda/uploader.h"

#include "ops/cuda/context.h"

namespace millrace::ops::cuda {
namespace {

class CudaUploader final : public Uploader {
public:
    CudaUploader(cudaStream_t stream, cudaEvent_t done) : stream_(stream), done_(done) {}
    ~CudaUploader() override {
        (void)cudaStreamDestroy(stream_);
        (void)cudaEventDestroy(done_);
    }
    CudaUploader(const CudaUploader&) = delete;
    CudaUploader& operator=(const CudaUploader&) = delete;

    base::Status copy(std::byte* device, const std::byte* host, std::size_t bytes) override {
        cudaError_t code = cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_);
        if (code == cudaSuccess) code = cudaEventRecord(done_, stream_);
        if (code == cudaSuccess) code = cudaEventSynchronize(done_);
        if (code != cudaSuccess) return cuda_error(code, "copying data to the device");
        return base::ok();
    }

private:
    cudaStream_t stream_;
    cudaEvent_t done_;
};

}  // namespace

base::Result<std::unique_ptr<Uploader>> make_cuda_uploader() {
    cudaStream_t stream = nullptr;
    cudaEvent_t done = nullptr;
    if (auto code = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking); code != cudaSuccess)
        return cuda_error(code, "creating a stream for copies");
    if (auto code = cudaEventCreateWithFlags(&done, cudaEventBlockingSync | cudaEventDisableTiming); code != cudaSuccess) {
        (void)cudaStreamDestroy(stream);
        return cuda_error(code, "creating an event for copies");
    }
    return std::unique_ptr<Uploader>(std::make_unique<CudaUploader>(stream, done));
}

}  // namespace millrace::ops::cuda
