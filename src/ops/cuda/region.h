#pragma once
// Records with a condition (ops::Record::condition): in a captured program the body of a conditional node, so that skipping them
// costs one small kernel.

#include <memory>
#include <vector>

#include "ops/cuda/context.h"

namespace millrace::ops::cuda {

/// The stream on which a region's kernels are prepared and captured, apart from the one they wait for.
class RegionStream {
public:
    static base::Result<std::unique_ptr<RegionStream>> make();
    ~RegionStream();
    [[nodiscard]] cudaStream_t stream() const { return stream_; }
    /// For passes that are not captured: the region's stream waits for `main`, or `main` for it.
    void enter(cudaStream_t main) const;
    void leave(cudaStream_t main) const;

private:
    cudaStream_t stream_ = nullptr;
    cudaEvent_t event_ = nullptr;
};

/// Runs `inner`, prepared with c.stream being region.stream(), if a flag is set. An uncaptured pass runs it
/// always.
KernelPtr make_region(Context& c, const RegionStream& region, const tensor::Operand& flags, std::vector<KernelPtr> inner);

}  // namespace millrace::ops::cuda
