#include "ops/cpu/cpu_backend.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "ops/cpu/kernel.h"
#include "ops/cpu/tables.h"
#include "ops/region.h"

namespace millrace::ops::cpu {
namespace {

constexpr const char* kTableVariable = "MILLRACE_CPU";

class HostMemory final : public Memory {
public:
    static constexpr std::align_val_t kAlignment{256};
    static base::Result<std::unique_ptr<Memory>> make(std::size_t bytes) {
        void* data = ::operator new(bytes == 0 ? 1 : bytes, kAlignment, std::nothrow);
        if (data == nullptr)
            return base::Error{fmt::format("no memory for {} bytes; a smaller batch or model needs less", bytes), "", 1};
        std::memset(data, 0, bytes);
        return std::unique_ptr<Memory>(new HostMemory(static_cast<std::byte*>(data), bytes));
    }
    ~HostMemory() override { ::operator delete(data_, kAlignment); }
    HostMemory(const HostMemory&) = delete;
    HostMemory& operator=(const HostMemory&) = delete;
    [[nodiscard]] std::byte* data() override { return data_; }
    [[nodiscard]] std::size_t size() const override { return size_; }

private:
    HostMemory(std::byte* data, std::size_t size) : data_(data), size_(size) {}
    std::byte* data_;
    std::size_t size_;
};

class CpuBackend final : public Backend {
public:
    CpuBackend(int threads, const SimdKernels& table) : context_(threads, table) {}

    [[nodiscard]] DeviceKind kind() const override { return DeviceKind::cpu; }
    [[nodiscard]] std::string description() const override {
        const int threads = context_.pool.threads();
        return fmt::format("{} thread{}, built-in {} kernels", threads, threads == 1 ? "" : "s", context_.simd.name);
    }
    [[nodiscard]] base::Result<std::unique_ptr<Memory>> allocate(std::size_t bytes) override { return HostMemory::make(bytes); }
    [[nodiscard]] base::Result<std::unique_ptr<Memory>> allocate_shared(std::size_t bytes) override {
        return HostMemory::make(bytes);
    }
    void upload(std::byte* device, const void* host, std::size_t bytes) override {
        if (bytes > 0) std::memcpy(device, host, bytes);
    }
    void download(void* host, const std::byte* device, std::size_t bytes) override {
        if (bytes > 0) std::memcpy(host, device, bytes);
    }
    void synchronize() override {}
    [[nodiscard]] base::Status check() override { return base::ok(); }

    [[nodiscard]] base::Result<std::vector<std::unique_ptr<Kernel>>> prepare(std::span<const Bound> records,
                                                                             std::span<const Group>) override {
        std::vector<std::unique_ptr<Kernel>> kernels;
        kernels.reserve(records.size());
        for (std::size_t i = 0; i < records.size(); ++i) {
            const OpDef& op = *records[i].record->op;
            if (op.cpu == nullptr) return missing_operator(op, DeviceKind::cpu);
            MILLRACE_LET(kernel, op.cpu(context_, records[i]));
            kernel->first = i;
            kernels.push_back(std::move(kernel));
        }
        MILLRACE_TRY(context_.scratch.allocate());
        gather_regions(records, kernels);
        return kernels;
    }

private:
    Context context_;
};

}  // namespace

base::Result<std::unique_ptr<Backend>> make_backend(const BackendOptions& options) {
    constexpr int kMostThreads = 1024;
    if (options.threads < 0 || options.threads > kMostThreads)
        return base::Error{fmt::format("{} CPU threads; 0 (one per core) to {} would be right", options.threads, kMostThreads)};
    const char* set = std::getenv(kTableVariable);
    const bool from_environment = options.cpu_table.empty() && set != nullptr;
    auto table = find_table(from_environment ? set : options.cpu_table);
    if (!table.ok() && from_environment) return base::Error{table.error().message, fmt::format("{}={}", kTableVariable, set)};
    if (!table.ok()) return table.error();
    return std::unique_ptr<Backend>(std::make_unique<CpuBackend>(options.threads, **table));
}

}  // namespace millrace::ops::cpu
