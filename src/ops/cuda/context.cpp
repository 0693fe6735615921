#include "ops/cuda/context.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace::ops::cuda {

base::Error cuda_error(cudaError_t code, const std::string& what) {
    return base::Error{fmt::format("{} failed: {} ({})", what, cudaGetErrorString(code), cudaGetErrorName(code))};
}

base::Status check_cuda(cudaError_t code, const std::string& what) {
    return code == cudaSuccess ? base::ok() : base::Status(cuda_error(code, what));
}

bool writes_elements(const Bound& b) {
    for (int slot = 0; slot < b.record->slot_count(); ++slot)
        if (b.record->writes(slot) && b[slot].present() && b[slot].count() > 0) return true;
    return false;
}

bool Context::reads_early(std::initializer_list<const tensor::Operand*> operands) const {
    // A copy of an operand is written by the launch in front of this one.
    const auto is_own = [&](const tensor::Operand* o) {
        const auto& own = records[at].operands;
        return !o->present() || std::any_of(own.begin(), own.end(), [&](const tensor::Operand& s) { return s.data == o->data; });
    };
    if (behind_sums || !std::all_of(operands.begin(), operands.end(), is_own)) return false;
    for (std::size_t before = at; before > border;) {
        const Bound& record = records[--before];
        if (record.condition.data != records[at].condition.data) return true;  // nothing goes on behind the end of a region
        if (!writes_elements(record)) continue;
        return std::none_of(operands.begin(), operands.end(),
                            [&](const tensor::Operand* o) { return o->present() && uses->is_written(*o, before, at); });
    }
    return false;
}

base::Status raise_shared_memory(const Context& c, const void* kernel) {
    // The limit leaves a kibibyte to what a kernel declares itself; a kernel with more gets so much less.
    cudaFuncAttributes declared{};
    cudaError_t code = cudaFuncGetAttributes(&declared, kernel);
    const std::size_t bytes = c.shared_limit - (std::max<std::size_t>(declared.sharedSizeBytes, 1024) - 1024);
    if (code == cudaSuccess)
        code = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
    return check_cuda(code, fmt::format("raising a kernel's shared memory to {} bytes", bytes));
}

namespace {

/// On the device, or pinned host memory mapped into it: the kernel writes that over the bus, the host reads it without a copy.
class CudaMemory final : public Memory {
public:
    CudaMemory(void* data, std::size_t size, cudaError_t (*release)(void*))
        : data_(static_cast<std::byte*>(data)), size_(size), release_(release) {}
    // At process exit the driver may be gone already; it has then freed everything itself.
    ~CudaMemory() override { (void)release_(data_); }
    std::byte* data() override { return data_; }
    [[nodiscard]] std::size_t size() const override { return size_; }

private:
    std::byte* data_;
    std::size_t size_;
    cudaError_t (*release_)(void*);
};

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
        return check_cuda(code, "copying data to the device");
    }

private:
    cudaStream_t stream_;
    cudaEvent_t done_;
};

constexpr std::size_t kTableAlign = 256;

/// Where tables lie that have no memory; no operand does.
std::byte* measured_address(std::size_t at) { return reinterpret_cast<std::byte*>((std::uintptr_t{3} << 45) + at); }

std::size_t aligned(std::size_t bytes) { return (bytes + kTableAlign - 1) / kTableAlign * kTableAlign; }

/// At this byte of the scratch, if that has room for all that is asked for.
base::Result<DeviceTable> table_at(const Context& c, std::size_t at, std::size_t bytes) {
    if (c.measures) return DeviceTable(std::shared_ptr<void>(), measured_address(at));
    if (c.scratch_used + c.lent <= c.scratch.size()) return DeviceTable(std::shared_ptr<void>(), c.scratch.data() + at);
    MILLRACE_LET(memory, allocate_memory(c, bytes));
    std::byte* const data = memory->data();
    return DeviceTable(std::shared_ptr<Memory>(std::move(memory)), data);
}

base::Result<DeviceTable> allocate_table(const Context& c, std::size_t bytes) {
    if (bytes == 0) return DeviceTable{};
    const std::size_t at = c.scratch_used;
    c.scratch_used += aligned(bytes);
    return table_at(c, at, bytes);
}

}  // namespace

base::Result<std::unique_ptr<Memory>> allocate_memory(const Context& c, std::size_t bytes) {
    void* data = nullptr;
    c.allocations += 1;
    if (auto code = cudaMalloc(&data, bytes); code != cudaSuccess) {
        (void)cudaGetLastError();
        std::size_t free = 0, total = 0;
        (void)cudaMemGetInfo(&free, &total);
        return base::Error{fmt::format("the GPU has {:.1f} MiB free of {:.1f}; {:.1f} were asked for",
                                       static_cast<double>(free) / (1 << 20), static_cast<double>(total) / (1 << 20),
                                       static_cast<double>(bytes) / (1 << 20))};
    }
    return std::unique_ptr<Memory>(std::make_unique<CudaMemory>(data, bytes, cudaFree));
}

base::Result<std::unique_ptr<Memory>> allocate_pinned(const Context& c, std::size_t bytes) {
    void* data = nullptr;
    c.allocations += 1;
    if (auto code = cudaHostAlloc(&data, bytes, cudaHostAllocMapped | cudaHostAllocPortable); code != cudaSuccess) {
        (void)cudaGetLastError();
        return cuda_error(code, fmt::format("pinning {} bytes of host memory", bytes));
    }
    std::fill_n(static_cast<std::byte*>(data), bytes, std::byte{0});
    return std::unique_ptr<Memory>(std::make_unique<CudaMemory>(data, bytes, cudaFreeHost));
}

base::Result<DeviceTable> upload_table(const Context& c, const void* host, std::size_t bytes) {
    MILLRACE_LET(table, allocate_table(c, bytes));
    if (c.measures || bytes == 0) return table;
    // On the compute stream, which does not wait for the legacy one.
    MILLRACE_TRY(check_cuda(cudaMemcpyAsync(table.get(), host, bytes, cudaMemcpyHostToDevice, c.stream), "copying a table"));
    MILLRACE_TRY(check_cuda(cudaStreamSynchronize(c.stream), "copying a table"));
    return table;
}

base::Result<DeviceTable> lend_table(const Context& c, std::size_t bytes) {
    constexpr std::size_t kMeasured = std::size_t{1} << 40;  // behind all tables
    if (bytes == 0) return DeviceTable{};
    const std::size_t from_end = aligned(bytes) + aligned(c.lent_below);
    c.lent = std::max(c.lent, from_end);
    return table_at(c, c.measures ? kMeasured : c.scratch.size() / kTableAlign * kTableAlign - from_end, bytes);
}

base::Result<DeviceTable> zero_table(const Context& c, std::size_t bytes) {
    MILLRACE_LET(table, allocate_table(c, bytes));
    if (c.measures || bytes == 0) return table;
    MILLRACE_TRY(check_cuda(cudaMemsetAsync(table.get(), 0, bytes, c.stream), "clearing a kernel's memory"));
    return table;
}

base::Result<std::unique_ptr<Uploader>> make_cuda_uploader() {
    cudaStream_t stream = nullptr;
    cudaEvent_t done = nullptr;
    MILLRACE_TRY(check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a stream for copies"));
    if (auto code = cudaEventCreateWithFlags(&done, cudaEventBlockingSync | cudaEventDisableTiming); code != cudaSuccess) {
        (void)cudaStreamDestroy(stream);
        return cuda_error(code, "creating an event for copies");
    }
    return std::unique_ptr<Uploader>(std::make_unique<CudaUploader>(stream, done));
}

}  // namespace millrace::ops::cuda
