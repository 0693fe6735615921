// Which kernels the CPU backend takes, and which it refuses.
#include "ops/cpu/cpu_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>

#include "ops/backend.h"

namespace millrace::ops {
namespace {

/// MILLRACE_CPU for one test; what it was before comes back.
class Variable {
public:
    explicit Variable(const char* value) {
        if (const char* set = std::getenv(kName)) before_ = set;
        setenv(kName, value, 1);
    }
    ~Variable() { before_ ? setenv(kName, before_->c_str(), 1) : unsetenv(kName); }
    Variable(const Variable&) = delete;
    Variable& operator=(const Variable&) = delete;

private:
    static constexpr const char* kName = "MILLRACE_CPU";
    std::optional<std::string> before_;
};

std::string own_tables() {
    std::string ids;
    for (const cpu::SimdKernels* table : cpu::tables()) ids += (ids.empty() ? "" : ", ") + std::string(table->id);
    return ids;
}

TEST(CpuTables, PortableOneOfTheArchitectureIsAlwaysThere) {
#if defined(__aarch64__)
    EXPECT_STREQ(cpu::tables().back()->id, "neon");
#elif defined(__x86_64__)
    EXPECT_STREQ(cpu::tables().back()->id, "sse2");
#endif
    EXPECT_EQ((*cpu::find_table(""))->id, cpu::tables().front()->id);
}

TEST(CpuTables, EachCanBeForcedAndIsNamed) {
    for (const cpu::SimdKernels* table : cpu::tables()) {
        const Variable variable(table->id);
        const auto backend = make_backend(DeviceKind::cpu, {.threads = 1});
        ASSERT_TRUE(backend.ok()) << backend.error().text();
        EXPECT_EQ((*backend)->description(), "1 thread, built-in " + std::string(table->name) + " kernels");
    }
}

TEST(CpuTables, OptionBeatsTheEnvironment) {
    const Variable variable("nonsense");
    EXPECT_TRUE(make_backend(DeviceKind::cpu, {.threads = 1, .cpu_table = cpu::tables().back()->id}).ok());
}

TEST(CpuTables, OneThatCannotRunHereIsRefused) {
    for (const std::string id : {"sse2", "avx2", "avx512", "neon", "NEON", "avx", " "}) {
        const auto own = cpu::tables();
        if (std::any_of(own.begin(), own.end(), [&](const cpu::SimdKernels* table) { return id == table->id; })) continue;
        const Variable variable(id.c_str());
        const auto backend = make_backend(DeviceKind::cpu, {.threads = 1});
        ASSERT_FALSE(backend.ok()) << id;
        EXPECT_EQ(backend.error().text(),
                  "MILLRACE_CPU=" + id + ": this machine has no CPU kernels '" + id + "'; it can run " + own_tables());
        EXPECT_EQ(backend.error().exit_status, 2);
    }
}

TEST(CpuTables, EmptyVariableMeansTheFastest) {
    const Variable variable("");
    EXPECT_TRUE(make_backend(DeviceKind::cpu, {.threads = 1}).ok());
}

}  // namespace
}  // namespace millrace::ops
