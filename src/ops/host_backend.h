#pragma once
// What the backends that compute on the host share: memory, copies, and conditions that the host reads.

#include <string>
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
    [[nodiscard]] base::Result<std::vector<std::unique_ptr<Kernel>>> prepare(std::span<const Bound> records,
                                                                             std::span<const Section> sections,
                                                                             std::span<std::byte> scratch) override;

protected:
    explicit HostBackend(const BackendOptions& options) : off_(options.rewrites_off) {}
    /// The kernel of a record that obeys its rule.
    [[nodiscard]] virtual KernelResult make(const Bound& bound) = 0;
    /// Called when all kernels of a program are made.
    [[nodiscard]] virtual base::Status finish() { return base::ok(); }

    std::vector<std::string> off_;  ///< BackendOptions::rewrites_off
};

namespace ref {
/// The reference backend: scalar loops in double (real = stat = f64), one function per operator, written to be obviously right.
/// It is the yardstick of the other backends' tests and too slow to train with.
base::Result<std::unique_ptr<Backend>> make_backend(const BackendOptions& options);
}  // namespace ref

}  // namespace millrace::ops
