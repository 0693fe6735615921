#pragma once
// What the backends that compute on the host share: memory, copies, and conditions that the host reads.

#include <vector>

#include "ops/backend.h"

namespace millrace::ops {

class HostBackend : public Backend {
public:
    [[nodiscard]] base::Result<std::unique_ptr<Memory>> allocate(std::size_t bytes) override;
    [[nodiscard]] base::Result<std::unique_ptr<Memory>> allocate_shared(std::size_t bytes) override { return allocate(bytes); }
    void upload(std::byte* device, const void* host, std::size_t bytes) override;
    void download(void* host, const std::byte* device, std::size_t bytes) override;
    void clear(std::byte* device, std::size_t bytes) override;
    [[nodiscard]] base::Result<std::unique_ptr<Uploader>> make_uploader() override;
    void synchronize() override {}
    [[nodiscard]] base::Status check() override { return base::ok(); }
};

/// Takes neighbours of a section with one condition (ops::Record::condition) together in a kernel that asks it. `kernels` holds
/// one per record.
void gather_regions(std::span<const Bound> records, std::span<const Section> sections,
                    std::vector<std::unique_ptr<Kernel>>& kernels);

}  // namespace millrace::ops
