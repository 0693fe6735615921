#include "ops/cpu/cpu_backend.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "ops/check.h"
#include "ops/cpu/kernel.h"
#include "ops/host_backend.h"

namespace millrace::ops::cpu {
namespace {

constexpr const char* kTableVariable = "MILLRACE_CPU";
constexpr tensor::DType kReals[] = {tensor::DType::f32};

class CpuBackend final : public HostBackend {
public:
    CpuBackend(const BackendOptions& options, const SimdKernels& table)
        : HostBackend(options), context_(options.threads, table, options.group) {}

    [[nodiscard]] DeviceKind kind() const override { return DeviceKind::cpu; }
    [[nodiscard]] base::Status check() override { return std::exchange(context_.group_error, base::ok()); }
    [[nodiscard]] std::string description() const override {
        const int threads = context_.pool.threads();
        return fmt::format("{} thread{}, built-in {} kernels", threads, threads == 1 ? "" : "s", context_.simd.name);
    }

    [[nodiscard]] Match match(const Rewrite& rewrite, const Window& window) const override {
        return rewrite.cpu == nullptr || is_off(rewrite, off_) ? Match{} : rewrite.cpu(context_, window);
    }
    [[nodiscard]] WorkingMemory measure_shared(std::span<const Bound> records) override {
        const Scratch::Wanted before = context_.scratch.want({});
        for (const Bound& record : records) (void)make(record);
        return context_.scratch.memory(context_.scratch.want(before));
    }

private:
    [[nodiscard]] KernelResult make(const Bound& bound) override {
        const OpDef& op = *bound.record->op;
        if (op.cpu == nullptr) return missing_operator(op, DeviceKind::cpu);
        MILLRACE_TRY(check_record(*bound.record, kReals));
        return op.cpu(context_, bound);
    }
    [[nodiscard]] base::Status finish() override { return context_.scratch.allocate(); }

    Context context_;
};

}  // namespace

std::vector<const SimdKernels*> tables() {
    std::vector<const SimdKernels*> all;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) all.push_back(&avx512::simd_kernels);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) all.push_back(&avx2::simd_kernels);
#endif
    all.push_back(&portable::simd_kernels);
    return all;
}

base::Result<const SimdKernels*> find_table(std::string_view id) {
    const std::vector<const SimdKernels*> all = tables();
    if (id.empty()) return all.front();
    std::string ids;
    for (const SimdKernels* table : all) {
        if (id == table->id) return table;
        ids += (ids.empty() ? "" : ", ") + std::string(table->id);
    }
    return base::Error{fmt::format("this machine has no CPU kernels '{}'; it can run {}", id, ids)};
}

base::Result<std::unique_ptr<Backend>> make_backend(const BackendOptions& options) {
    constexpr int kMostThreads = 1024;
    if (options.threads < 0 || options.threads > kMostThreads)
        return base::Error{fmt::format("{} CPU threads; 0 (one per core) to {} would be right", options.threads, kMostThreads)};
    const char* set = std::getenv(kTableVariable);
    const bool from_environment = options.cpu_table.empty() && set != nullptr;
    auto table = find_table(from_environment ? set : options.cpu_table);
    if (!table.ok() && from_environment) return base::Error{table.error().message, fmt::format("{}={}", kTableVariable, set)};
    if (!table.ok()) return table.error();
    return std::unique_ptr<Backend>(std::make_unique<CpuBackend>(options, **table));
}

}  // namespace millrace::ops::cpu
