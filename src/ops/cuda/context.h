#pragma once
// What the CUDA kernels of one backend share: the compute stream, the cuBLASLt handle and its workspace.

#include <cuda_runtime.h>

#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "ops/backend.h"

struct cublasLtContext;  // of cublasLt.h, a tenth of what a .cu file would parse

namespace millrace::comm {
class Nccl;
}
namespace millrace::ops::cuda {

struct CublasLt;
using Kernels = std::vector<std::shared_ptr<Kernel>>;

struct WeightCopy;
struct ChunkSums;
struct GradientSquares;

struct Context {
    cudaStream_t stream = nullptr;
    const CublasLt* cublas = nullptr;
    cublasLtContext* lt = nullptr;
    void* workspace = nullptr;  ///< of one launch or a kernel's own sequence of launches, then of the next
    std::size_t workspace_bytes = 0;
    bool tf32 = false;  ///< BackendOptions::tf32
    bool fuse = true;   ///< kernels that do a whole record at once, unless all rewrites are off
    int multiprocessors = 0;
    std::size_t memory_bytes = 0;  ///< of the device
    std::size_t shared_limit = 0;  ///< bytes of dynamic shared memory a block may ask for
    int fused_rows = 64;           ///< largest batch of a fused dense layer: 256 where blocks can form clusters
    int library_rows = 2048;       ///< from so many rows on the library's products beat the fused kernels for few
    bool deterministic = false;
    std::vector<std::string> forms;                         ///< BackendOptions::forms
    mutable std::map<std::string, std::string> chosen;      ///< forms by choice (forms.cpp): Backend::forms()
    std::vector<std::shared_ptr<WeightCopy>> copies;        ///< of the section being prepared (weight_copies.h)
    std::vector<std::shared_ptr<GradientSquares>> squares;  ///< of the program being prepared (squares.h)
    std::vector<std::shared_ptr<ChunkSums>> late_sums;      ///< of the section being prepared (late_sums.h)
    std::span<const Bound> records;                         ///< of the program being prepared
    const Uses* uses = nullptr;                             ///< of them
    std::size_t at = 0;                                     ///< the record being prepared
    std::size_t border = 0;                                 ///< the first record of its section or region
    bool behind_sums = false;                               ///< the launch in front of it is one of late_sums.h
    /// Where copies of weights that a region shares with others go (they must be made even when it is left out), and their
    /// stream.
    Kernels* ahead = nullptr;
    cudaStream_t ahead_stream = nullptr;
    std::span<std::byte> scratch;             ///< of the program being prepared, for tables
    bool measures = false;                    ///< tables have addresses without memory, since only their sizes are asked for
    mutable std::size_t scratch_used = 0;     ///< bytes of tables so far
    mutable std::size_t lent = 0;             ///< bytes at the end of `scratch` that kernels use one after the other
    std::size_t lent_below = 0;               ///< bytes of these that the record being prepared has already
    mutable std::size_t allocations = 0;      ///< MemoryState::allocations
    cudaError_t capture_error = cudaSuccess;  ///< first failure inside a capture
    int product_status = 0;                   ///< the first cublasStatus_t that was no success since the last check
    comm::Nccl* nccl = nullptr;               ///< of the ranks of BackendOptions::group; null: this process alone
    base::Status group_error = base::ok();    ///< the first of its calls since the last check

    /// Whether the record being prepared may read these before the launch in front of it is done (device.cuh, begin_kernel):
    /// that launch does not write them, and it is of the same program, so that what writes them there is older.
    [[nodiscard]] bool reads_early(std::initializer_list<const tensor::Operand*> operands) const;
    /// A copy that is made now is made before this record, a region's before all of it.
    [[nodiscard]] std::size_t copied_at() const { return ahead != nullptr ? border : at; }
    /// Whether a copy of `o` that was made before the record `made` is still up to date.
    [[nodiscard]] bool is_current(const tensor::Operand& o, std::size_t made) const { return !uses->is_written(o, made, at); }
};

/// Whether the record has an element to write; one without does nothing, and its operator is not asked for a kernel.
bool writes_elements(const Bound& record);

using KernelPtr = std::unique_ptr<Kernel>;

/// A kernel from a callable that enqueues the launch.
template <class F>
class Launch final : public Kernel {
public:
    explicit Launch(F f) : f_(std::move(f)) {}
    void run() noexcept override { f_(); }

private:
    F f_;
};
template <class F>
KernelPtr make_kernel(F f) {
    return std::make_unique<Launch<F>>(std::move(f));
}

/// Kernels one after the other; what is `held` lives as long as they do.
template <class... Held>
KernelPtr in_order(Kernels kernels, Held... held) {
    return make_kernel([kernels = std::move(kernels), ... held = std::move(held)] {
        for (const auto& kernel : kernels) kernel->run();
    });
}

/// Device memory that lives as long as a prepared kernel (tables of tiles, sums between launches): a piece of the program's
/// scratch, or where that ends an allocation, freed with the last pointer.
class DeviceTable : public std::shared_ptr<void> {
public:
    using std::shared_ptr<void>::shared_ptr;
    template <class T>
    explicit operator T*() const {
        return static_cast<T*>(get());
    }
};
base::Result<DeviceTable> upload_table(const Context& c, const void* host, std::size_t bytes);
base::Result<DeviceTable> zero_table(const Context& c, std::size_t bytes);
/// Memory that a kernel fills and reads while it runs, lent to the next one afterwards.
base::Result<DeviceTable> lend_table(const Context& c, std::size_t bytes);

base::Error cuda_error(cudaError_t code, const std::string& what);
/// That error, unless the call was a success.
base::Status check_cuda(cudaError_t code, const std::string& what);
/// All device memory of a backend: counted, not cleared.
base::Result<std::unique_ptr<Memory>> allocate_memory(const Context& c, std::size_t bytes);
/// Pinned memory of the host that the device addresses, too.
base::Result<std::unique_ptr<Memory>> allocate_pinned(const Context& c, std::size_t bytes);
/// Copies on a stream of its own; the calling thread sleeps meanwhile.
base::Result<std::unique_ptr<Uploader>> make_cuda_uploader();
/// Events on `stream`, which must outlive the time line.
base::Result<std::unique_ptr<Timeline>> make_timeline(cudaStream_t stream, std::size_t marks);

/// Whether the device and the compiled code know clusters and dependent launches (device.cuh).
bool dependent_launches();
/// Whether they have the instructions of hopper.cuh.
bool has_tile_products();

/// Zeros, as fill does.
KernelResult make_zeros(Context&, const tensor::Operand& out);
KernelResult make_column_sum(Context&, const tensor::Operand& in, const tensor::Operand& out, bool accumulate);

// Matrix products through cuBLASLt, with an own kernel for shapes it does not take. beta 1 accumulates.
enum class Product : std::uint8_t { forward, dgrad, wgrad };  ///< x w^T, dz w, dz^T x
/// a, b, c as in the contract: forward (x, w, z), dgrad (dz, w, dx), wgrad (dz, x, dw).
KernelResult make_product(Context&, Product, const tensor::Operand& a, const tensor::Operand& b, const tensor::Operand& c,
                          bool accumulate);
/// x w^T + bias of one matrix in f32 by the library; null where it has no kernel for that.
KernelPtr make_biased_product(Context&, const tensor::Operand& x, const tensor::Operand& w, const tensor::Operand& bias,
                              const tensor::Operand& z);
/// How many launches of the library a product takes: it goes over groups at once, or over members where there is one group.
inline int library_launches(const tensor::Operand& out) { return out.g == 1 ? 1 : out.k; }
/// A kernel that writes both operands of a product in strict f32 as numbers of bf16; the product of `a_parts` and `b_parts`, of
/// the same kind, is theirs. The memory is lent: of the kernels that follow, only that product may read it.
KernelResult make_parts(Context&, Product, const tensor::Operand& a, const tensor::Operand& b, tensor::Operand& a_parts,
                        tensor::Operand& b_parts);
void launch_plain_product(cudaStream_t, Product, const tensor::Operand& a, const tensor::Operand& b, const tensor::Operand& c,
                          bool accumulate);

/// Lets a kernel use all the shared memory a block may have.
base::Status raise_shared_memory(const Context&, const void* kernel);

}  // namespace millrace::ops::cuda
