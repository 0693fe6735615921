// The same on a GPU: two to four ranks on one, NCCL between them.

#include "cli/over_ranks.h"
#include "ops/backend.h"

namespace millrace::cli {
namespace {

template <class Base>
class OnGpu : public Base {
protected:
    void SetUp() override {
        if (const auto there = ops::cuda_available(); !there.ok()) GTEST_SKIP() << there.error().text();
        Base::device_ = "cuda";
        Base::SetUp();
    }
};

using FamilyOverCudaRanks = OnGpu<FamilyOverRanks>;
using CudaRanks = OnGpu<LostRanks>;

TEST_P(FamilyOverCudaRanks, GivesTheBitsOfOneProcess) { expect_the_bits_of_one_process({"deterministic=true"}); }

INSTANTIATE_TEST_SUITE_P(All, FamilyOverCudaRanks, ::testing::ValuesIn(families()),
                         [](const auto& given) { return given.param.name; });

TEST_F(CudaRanks, MembersGiveTheBitsOfOneProcessOnAnyNumberOfRanks) {
    const auto words = [&](const std::string& run) {
        return train_words(
            run, set({"members=4", "device=cuda", "deterministic=true", "train.epochs=2", "optim.lr=1e-3,2e-3,3e-3,4e-3"}));
    };
    ASSERT_EQ(call(words("one")).status, 0);
    for (const int ranks : {2, 4}) {
        const std::string name = "over" + std::to_string(ranks);
        const Said said = over(ranks, words(name));
        ASSERT_EQ(said.status, 0) << said.err;
        EXPECT_EQ(tensors_apart(folder_ / "one", folder_ / name), std::vector<std::string>{});
        EXPECT_EQ(scores_of(folder_ / name), scores_of(folder_ / "one"));
    }
}

TEST_F(CudaRanks, AKilledOneEndsAllAndTheRunGoesOnToEqualBits) {
    Child child(folder_.string(), words_over(3, words("run")), mpirun());
    const auto processes = ranks_of(child, 3, "run");
    ASSERT_EQ(processes.size(), 3u);
    kill(processes.at(1), SIGKILL);
    EXPECT_NE(child.wait().status, 0);
    expect_gone(processes);
    expect_whole_after_resuming("run");
}

TEST_F(CudaRanks, AStoppedOneIsNamedByTheOthers) {
    expect_signal_ends(2, SIGSTOP, 75, "waited 2 s for the other ranks in step ", {"parallel.timeout=2s"});
}

TEST_F(CudaRanks, ATerminatedOneSavesTheSameStepOnAll) { expect_signal_ends(1, SIGTERM, 143, ""); }

}  // namespace
}  // namespace millrace::cli
