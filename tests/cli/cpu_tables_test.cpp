// MILLRACE_CPU: every command that computes takes the kernels it names, or refuses.
#include "cli/folder.h"
#include "ops/cpu/cpu_backend.h"

namespace millrace::cli {
namespace {

using CpuTables = InFolder;

ChildOptions with_table(const std::string& id) {
    ChildOptions options;
    options.environment = {"MILLRACE_CPU=" + id};
    return options;
}

TEST_F(CpuTables, ForcedOnesAreUsedAndNamed) {
    for (const ops::cpu::SimdKernels* table : ops::cpu::tables()) {
        const Said said = train(table->id, {}, with_table(table->id));
        EXPECT_EQ(said.status, 0) << said.err;
        EXPECT_NE(said.out.find("built-in " + std::string(table->name) + " kernels"), std::string::npos) << said.out;
    }
}

TEST_F(CpuTables, AbsentOnesAreRefusedByEveryCommandThatComputes) {
    ASSERT_EQ(train("run").status, 0);
    const ChildOptions absent = with_table("mmx");
    const std::vector<std::string> words{"MILLRACE_CPU=mmx", "it can run", ops::cpu::tables().back()->id};
    expect_refusal(train("other", {}, absent), words);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "other"));
    expect_refusal(call({"eval", path("run"), "--device", "cpu"}, absent), words);
    expect_refusal(call({"bench", "collective-debug-b32", "--device", "cpu", "--no-peers"}, absent), words);
}

}  // namespace
}  // namespace millrace::cli
