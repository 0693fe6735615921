#include "ops/cuda/cuda_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "comm/nccl.h"
#include "ops/check.h"
#include "ops/cuda/context.h"
#include "ops/cuda/cublas.h"
#include "ops/cuda/forms.h"
#include "ops/cuda/late_sums.h"
#include "ops/cuda/region.h"
#include "ops/cuda/squares.h"
#include "ops/peak.h"

namespace millrace::ops {
namespace cuda {
namespace {

class GraphReplay final : public Replay {
public:
    GraphReplay(cudaGraphExec_t exec, cudaStream_t stream, std::size_t nodes) : exec_(exec), stream_(stream), nodes_(nodes) {}
    ~GraphReplay() override { (void)cudaGraphExecDestroy(exec_); }
    void launch() noexcept override { (void)cudaGraphLaunch(exec_, stream_); }
    [[nodiscard]] std::size_t node_count() const override { return nodes_; }

private:
    cudaGraphExec_t exec_;
    cudaStream_t stream_;
    std::size_t nodes_;
};

constexpr std::int64_t kMostBlocks = 65535;  // of a grid along y and z

class CudaBackend final : public Backend {
public:
    ~CudaBackend() override {
        if (context_.stream) (void)cudaStreamSynchronize(context_.stream);
        if (context_.lt) (void)context_.cublas->destroy(context_.lt);
        if (context_.stream) (void)cudaStreamDestroy(context_.stream);
    }

    base::Status start(const BackendOptions& options);
    base::Status join(comm::Group& group, const base::Status& started);
    [[nodiscard]] DeviceKind kind() const override { return DeviceKind::cuda; }
    [[nodiscard]] std::string description() const override { return description_; }
    base::Result<std::unique_ptr<Memory>> allocate(std::size_t bytes) override;
    [[nodiscard]] std::optional<MemoryState> memory() const override {
        MemoryState state;
        if (cudaMemGetInfo(&state.free, &state.total) != cudaSuccess) {
            (void)cudaGetLastError();
            return std::nullopt;
        }
        state.before = before_;
        state.held = context_.workspace_bytes;
        state.allocations = context_.allocations;
        return state;
    }
    base::Result<std::unique_ptr<Memory>> allocate_shared(std::size_t bytes) override { return allocate_pinned(context_, bytes); }

    void upload(std::byte* device, const void* host, std::size_t bytes) override {
        // By address: `host` may be device memory, too, when a member is copied to another.
        (void)cudaMemcpyAsync(device, host, bytes, cudaMemcpyDefault, context_.stream);
        (void)cudaStreamSynchronize(context_.stream);
    }
    void download(void* host, const std::byte* device, std::size_t bytes) override {
        (void)cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, context_.stream);
        (void)cudaStreamSynchronize(context_.stream);
    }
    void clear(std::byte* device, std::size_t bytes) override { (void)cudaMemsetAsync(device, 0, bytes, context_.stream); }
    base::Result<std::unique_ptr<Uploader>> make_uploader() override { return make_cuda_uploader(); }
    void synchronize() override { (void)cudaStreamSynchronize(context_.stream); }
    base::Status check() override {
        MILLRACE_TRY(check_cuda(cudaGetLastError(), "the device"));
        // Faults inside kernels show up when the stream is asked, not before.
        if (auto code = cudaStreamQuery(context_.stream); code != cudaSuccess && code != cudaErrorNotReady)
            return cuda_error(code, "the device");
        (void)cudaGetLastError();
        if (nccl_) MILLRACE_TRY(nccl_->async_error());
        MILLRACE_TRY(std::exchange(context_.group_error, base::ok()));
        if (const auto status = static_cast<cublasStatus_t>(std::exchange(context_.product_status, 0));
            status != CUBLAS_STATUS_SUCCESS)
            return base::Error{fmt::format("a matrix product failed: {} (cuBLASLt status {})",
                                           context_.cublas->status_string(status), static_cast<int>(status))};
        return base::ok();
    }

    base::Result<std::unique_ptr<Timeline>> make_timeline(std::size_t marks) override {
        return cuda::make_timeline(context_.stream, marks);
    }
    [[nodiscard]] std::optional<double> peak_flops(tensor::DType operands) const override {
        return operands == tensor::DType::bf16  ? peak_bf16_
               : operands == tensor::DType::f16 ? peak_f16_
               : operands == tensor::DType::f32 ? peak_f32_
                                                : std::nullopt;
    }
    [[nodiscard]] Match match(const Rewrite& rewrite, const Window& window) const override {
        return rewrite.cuda == nullptr || is_off(rewrite, off_) ? Match{} : rewrite.cuda(context_, window);
    }
    std::size_t measure_scratch(std::span<const Bound> records, std::span<const Section> sections) override;
    base::Result<std::vector<KernelPtr>> prepare(std::span<const Bound> records, std::span<const Section> sections,
                                                 std::span<std::byte> scratch) override;
    [[nodiscard]] std::vector<std::string> forms() const override { return chosen_forms(context_); }
    [[nodiscard]] bool can_capture() const override { return true; }
    base::Result<std::unique_ptr<Replay>> capture(const std::function<void()>& enqueue) override;

private:
    [[nodiscard]] base::Status check_record(const Bound& record) const;
    base::Result<std::vector<KernelPtr>> prepare_all(std::span<const Bound> records, std::span<const Section> sections);
    base::Status prepare_section(std::size_t first, std::size_t end, std::vector<KernelPtr>& kernels);
    /// Lets the last kernel do what waits (late_sums.h), too.
    base::Status append_late_sums(std::vector<KernelPtr>& kernels);
    /// Appends the kernel of a record.
    base::Status prepare_next(std::size_t at, std::vector<KernelPtr>& kernels);
    /// Records with one condition.
    base::Status prepare_region(std::size_t first, std::size_t end, std::vector<KernelPtr>& kernels);

    Context context_;
    std::unique_ptr<Memory> workspace_;
    std::unique_ptr<comm::Nccl> nccl_;
    std::size_t before_ = 0;  ///< MemoryState::before
    std::unique_ptr<RegionStream> region_;
    std::vector<std::string> off_;  ///< BackendOptions::rewrites_off
    std::string description_, capability_;
    bool has_bf16_ = false;
    std::optional<double> peak_bf16_, peak_f16_, peak_f32_;
};

base::Status CudaBackend::start(const BackendOptions& options) {
    cudaDeviceProp properties{};
    int device = 0;
    MILLRACE_TRY(check_cuda(cudaGetDevice(&device), "choosing a CUDA device"));
    MILLRACE_TRY(check_cuda(cudaGetDeviceProperties(&properties, device), "reading the device's properties"));
    description_ = fmt::format("{}, {} SMs, {:.0f} GiB", properties.name, properties.multiProcessorCount,
                               static_cast<double>(properties.totalGlobalMem) / (1u << 30));
    capability_ = fmt::format("{}.{}", properties.major, properties.minor);
    has_bf16_ = properties.major >= 8;
    int kilohertz = 0;
    (void)cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, device);
    const Chip chip{properties.name, properties.major, properties.minor, properties.multiProcessorCount, 1e3 * kilohertz};
    peak_bf16_ = ops::peak_flops(chip, tensor::DType::bf16);
    peak_f16_ = ops::peak_flops(chip, tensor::DType::f16);
    peak_f32_ = ops::peak_flops(chip, tensor::DType::f32);
    context_.multiprocessors = properties.multiProcessorCount;
    context_.memory_bytes = properties.totalGlobalMem;
    context_.shared_limit = properties.sharedMemPerBlockOptin - 1024;  // what kernels declare statically counts too
    context_.deterministic = options.deterministic;
    context_.forms = options.forms;
    context_.tf32 = options.tf32;
    if (options.tf32 && has_bf16_ && peak_bf16_) peak_f32_ = *peak_bf16_ / 2;
    off_ = options.rewrites_off;
    context_.fuse = std::find(off_.begin(), off_.end(), "all") == off_.end();
    context_.fused_rows = dependent_launches() ? 256 : 64;
    MILLRACE_TRY(check_cuda(cudaStreamCreateWithFlags(&context_.stream, cudaStreamNonBlocking), "creating a stream"));
    std::size_t total = 0;
    (void)cudaMemGetInfo(&before_, &total);
    MILLRACE_LET(cublas, load_cublas());
    context_.cublas = cublas;
    if (cublas->create(&context_.lt) != CUBLAS_STATUS_SUCCESS)
        return base::Error{"cuBLASLt could not be started; is its library of the same CUDA version?"};
    context_.workspace_bytes = 32u << 20;
    MILLRACE_LET(workspace, allocate_memory(context_, context_.workspace_bytes));
    workspace_ = std::move(workspace);
    context_.workspace = workspace_->data();
    return base::ok();
}

base::Status CudaBackend::join(comm::Group& group, const base::Status& started) {
    MILLRACE_TRY(group.agree(started));
    MILLRACE_SET(nccl_, comm::Nccl::open(group));
    context_.nccl = nccl_.get();
    return base::ok();
}

base::Result<std::unique_ptr<Memory>> CudaBackend::allocate(std::size_t bytes) {
    MILLRACE_LET(memory, allocate_memory(context_, bytes));
    MILLRACE_TRY(check_cuda(cudaMemsetAsync(memory->data(), 0, bytes, context_.stream), "clearing memory"));
    return memory;
}

base::Status CudaBackend::check_record(const Bound& record) const {
    const auto is_bf16 = [](const tensor::Operand& o) { return o.data != nullptr && o.dtype == tensor::DType::bf16; };
    if (!has_bf16_ && std::any_of(record.operands.begin(), record.operands.end(), is_bf16))
        return base::Error{fmt::format(
            "bf16 needs a GPU of compute capability 8.0 or newer, this one has {}; use precision = \"f16\"", capability_)};
    for (const tensor::Operand& o : record.operands)
        if (o.present() && std::int64_t{o.k} * o.g > kMostBlocks)
            return base::Error{
                fmt::format("{} members of {} groups are more than the {} blocks that a launch takes; use fewer members", o.k,
                            o.g, kMostBlocks)};
    if (record.record->op->cuda == nullptr) return missing_operator(*record.record->op, DeviceKind::cuda);
    constexpr tensor::DType kReals[] = {tensor::DType::f32, tensor::DType::bf16, tensor::DType::f16};
    return ops::check_record(*record.record, kReals);
}

std::size_t CudaBackend::measure_scratch(std::span<const Bound> records, std::span<const Section> sections) {
    context_.measures = true;
    (void)prepare_all(records, sections);
    context_.measures = false;
    (void)cudaGetLastError();  // preparing in earnest will say it
    return context_.scratch_used + context_.lent;
}

base::Result<std::vector<KernelPtr>> CudaBackend::prepare(std::span<const Bound> records, std::span<const Section> sections,
                                                          std::span<std::byte> scratch) {
    // A region's tables are written on its own stream, which does not wait for the clearing of the memory.
    (void)cudaStreamSynchronize(context_.stream);
    context_.scratch = scratch;
    auto kernels = prepare_all(records, sections);
    context_.scratch = {};
    return kernels;
}

base::Result<std::vector<KernelPtr>> CudaBackend::prepare_all(std::span<const Bound> records, std::span<const Section> sections) {
    const Uses uses(records, sections);
    context_.records = records;
    context_.uses = &uses;
    context_.squares.clear();  // of another program, which may not have run
    context_.scratch_used = context_.lent = 0;
    std::vector<KernelPtr> kernels;
    base::Status status = base::ok();
    const Section all{0, records.size(), 1};
    for (const Section& section : sections.empty() ? std::span(&all, 1) : sections)
        if (status.ok()) status = prepare_section(section.first, section.first + section.count, kernels);
    context_.squares.clear();
    context_.copies.clear();
    context_.late_sums.clear();  // of a program that could not be prepared
    context_.uses = nullptr;
    if (!status.ok()) return status.error();
    return kernels;
}

base::Status CudaBackend::prepare_section(std::size_t first, std::size_t end, std::vector<KernelPtr>& kernels) {
    context_.copies.clear();  // another section's, which may not run as often
    context_.border = first;
    for (std::size_t at = first; at < end;) {
        const tensor::Operand& condition = context_.records[at].condition;
        if (!condition.present()) {
            context_.behind_sums = touches_late_sums(context_, context_.records[at]);
            if (context_.behind_sums) MILLRACE_TRY(append_late_sums(kernels));
            MILLRACE_TRY(prepare_next(at++, kernels));
            context_.behind_sums = false;
            continue;
        }
        const std::size_t begin = at;
        MILLRACE_TRY(append_late_sums(kernels));
        while (at < end && context_.records[at].condition.data == condition.data) ++at;
        MILLRACE_TRY(prepare_region(begin, at, kernels));
        context_.border = first;
    }
    return append_late_sums(kernels);
}

base::Status CudaBackend::append_late_sums(std::vector<KernelPtr>& kernels) {
    MILLRACE_LET(sums, take_late_sums(context_));
    if (!sums) return base::ok();
    const std::shared_ptr<Kernel> last = std::exchange(kernels.back(), nullptr);
    kernels.back() = in_order({last, std::move(sums)});
    *kernels.back() = *last;  // its records and its form
    return base::ok();
}

base::Status CudaBackend::prepare_next(std::size_t at, std::vector<KernelPtr>& kernels) {
    const Bound& bound = context_.records[at];
    const Record& r = *bound.record;
    context_.at = at;
    context_.lent_below = 0;
    const std::size_t used = context_.scratch_used;
    const base::Status fits = check_record(bound);
    auto made = !fits.ok()               ? KernelResult(fits.error())
                : writes_elements(bound) ? r.op->cuda(context_, bound)
                                         : KernelResult(make_kernel([] {}));
    if (!made.ok())
        return base::Error{fmt::format("cannot prepare {}{}{}", r.op->name, r.layer.empty() ? "" : " of ", r.layer)}.because(
            made.error());
    made.value()->first = at;
    made.value()->scratch = context_.scratch_used - used;
    kernels.push_back(std::move(made).value());
    return base::ok();
}

base::Status CudaBackend::prepare_region(std::size_t first, std::size_t end, std::vector<KernelPtr>& kernels) {
    if (!region_) {
        MILLRACE_LET(made, RegionStream::make());
        region_ = std::move(made);
    }
    Kernels steps;
    std::vector<KernelPtr> inner;
    context_.border = first;
    context_.ahead = &steps;
    context_.ahead_stream = std::exchange(context_.stream, region_->stream());
    base::Status status = base::ok();
    for (std::size_t at = first; at < end && status.ok(); ++at) status = prepare_next(at, inner);
    (void)cudaStreamSynchronize(region_->stream());  // cleared tables that the copies ahead fill
    context_.stream = context_.ahead_stream;
    context_.ahead = nullptr;
    if (!status.ok()) return status;
    steps.push_back(make_region(context_, *region_, context_.records[first].condition, std::move(inner)));
    kernels.push_back(in_order(std::move(steps)));
    kernels.back()->first = first;
    kernels.back()->count = end - first;
    return base::ok();
}

base::Result<std::unique_ptr<Replay>> CudaBackend::capture(const std::function<void()>& enqueue) {
    (void)cudaStreamSynchronize(context_.stream);
    if (auto status = check(); !status.ok()) return status.error();
    MILLRACE_TRY(check_cuda(cudaStreamBeginCapture(context_.stream, cudaStreamCaptureModeThreadLocal), "beginning a capture"));
    context_.capture_error = cudaSuccess;
    enqueue();
    cudaGraph_t graph = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(context_.stream, &graph);
    if (context_.capture_error != cudaSuccess) {
        if (graph != nullptr) (void)cudaGraphDestroy(graph);
        return cuda_error(context_.capture_error, "capturing a region");
    }
    MILLRACE_TRY(check_cuda(ended, "ending a capture"));
    std::size_t nodes = 0;
    (void)cudaGraphGetNodes(graph, nullptr, &nodes);
    cudaGraphExec_t exec = nullptr;
    const cudaError_t code = cudaGraphInstantiate(&exec, graph, 0);
    (void)cudaGraphDestroy(graph);
    MILLRACE_TRY(check_cuda(code, "instantiating a graph"));
    (void)cudaGraphUpload(exec, context_.stream);
    return std::unique_ptr<Replay>(std::make_unique<GraphReplay>(exec, context_.stream, nodes));
}

}  // namespace

base::Result<std::unique_ptr<Backend>> make_backend(const BackendOptions& options) {
    auto backend = std::make_unique<CudaBackend>();
    base::Status started = cuda_available();
    if (started.ok()) started = backend->start(options);
    MILLRACE_TRY(options.group == nullptr ? std::move(started) : backend->join(*options.group, started));
    return std::unique_ptr<Backend>(std::move(backend));
}

}  // namespace cuda

base::Status cuda_available() {
    int count = 0;
    const cudaError_t code = cudaGetDeviceCount(&count);
    if (code != cudaSuccess) {
        (void)cudaGetLastError();
        return base::Error{fmt::format("no usable CUDA device: {}; use --device cpu, or check the driver with nvidia-smi",
                                       cudaGetErrorString(code))};
    }
    if (count == 0) return base::Error{"no CUDA device is visible; use --device cpu, or check CUDA_VISIBLE_DEVICES"};
    return base::ok();
}

bool cuda_lacks_bf16() {
    int device = 0, major = 8;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess)
        (void)cudaGetLastError();
    return major < 8;
}

}  // namespace millrace::ops
