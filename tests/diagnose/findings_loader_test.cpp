#include "diagnose/simulated_cases.h"

namespace millrace::diagnose {
namespace {

TEST(LoaderWait, IsSplitByWhyBatchesAreLate) {
    const auto evidence = [](char state, const Stack& stack) {
        const Diagnosis diagnosis = diagnose(simulate(
                                                 [&](SimulatedProgram& p, int, bool) {
                                                     p.next_batch(40'000, 2, 37, state, stack);
                                                     p.at(38);
                                                     train(p, {4, 200});
                                                 },
                                                 false)
                                                 .timeline);
        return diagnosis.findings.empty() ? "nothing" : diagnosis.findings.front().evidence;
    };
    EXPECT_NE(evidence('R', {user_line(90, "__getitem__")}).find("too few workers"), std::string::npos);
    EXPECT_NE(evidence('R', {user_line(90, "__getitem__")}).find("train.py:90"), std::string::npos);
    EXPECT_NE(evidence('D', {user_line(91, "__getitem__")}).find("slow reads"), std::string::npos);
    EXPECT_NE(evidence('R', {torch_line("utils/data/_utils/collate.py", "default_collate")}).find("packing"), std::string::npos);
}

TEST(LoaderWait, ALoaderWithoutWorkersIsOneToo) {
    expect_case(
        [](SimulatedProgram& p, int, bool cured) {
            p.at({user_line(90, "__getitem__"), torch_line("utils/data/_utils/fetch.py", "fetch"),
                  torch_line("utils/data/dataloader.py", "__next__"), user_line(37)});
            if (!cured) p.work(23'000);
            p.at(38);
            p.upload(1e6, true);
            train(p, {6, 300});
        },
        Kind::kLoaderWait, 90);
}

}  // namespace
}  // namespace millrace::diagnose
