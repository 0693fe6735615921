#include "ops/cpu/cpu_backend.h"

#include <fmt/format.h>

#include <cstdlib>
#include <utility>

#include "ops/check.h"
#include "ops/cpu/context.h"
#include "ops/cpu/tables.h"
#include "ops/host_backend.h"

namespace millrace::ops::cpu {
namespace {

constexpr const char* kTableVariable = "MILLRACE_CPU";
constexpr tensor::DType kReals[] = {tensor::DType::f32};

class CpuBackend final : public HostBackend {
public:
    CpuBackend(const BackendOptions& options, const SimdKernels& table)
        : context_(options.threads, table, options.group), off_(options.rewrites_off) {}

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
        for (const Bound& record : records)
            if (record.record->op->cpu != nullptr && check_record(*record.record, kReals).ok())
                (void)record.record->op->cpu(context_, record);
        return context_.scratch.memory(context_.scratch.want(before));
    }
    [[nodiscard]] base::Result<std::vector<std::unique_ptr<Kernel>>> prepare(std::span<const Bound> records,
                                                                             std::span<const Section> sections,
                                                                             std::span<std::byte> /*scratch*/) override {
        std::vector<std::unique_ptr<Kernel>> kernels;
        kernels.reserve(records.size());
        for (std::size_t i = 0; i < records.size(); ++i) {
            const OpDef& op = *records[i].record->op;
            if (op.cpu == nullptr) return missing_operator(op, DeviceKind::cpu);
            MILLRACE_TRY(check_record(*records[i].record, kReals));
            MILLRACE_LET(kernel, op.cpu(context_, records[i]));
            kernel->first = i;
            kernels.push_back(std::move(kernel));
        }
        MILLRACE_TRY(context_.scratch.allocate());
        gather_regions(records, sections, kernels);
        return kernels;
    }

private:
    Context context_;
    std::vector<std::string> off_;  ///< BackendOptions::rewrites_off
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
    return std::unique_ptr<Backend>(std::make_unique<CpuBackend>(options, **table));
}

}  // namespace millrace::ops::cpu
