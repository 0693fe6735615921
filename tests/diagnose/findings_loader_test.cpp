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

TEST(LoaderWait, APipeFromAnotherProcessIsWaitedFor) {
    const auto what = [](const Stack& stack) {
        const StepBody body = [&](SimulatedProgram& p, int, bool) {
            p.at(stack);
            p.work(23'000, 'S', "read");
            p.at(38);
            train(p, {6, 300});
        };
        const Diagnosis diagnosis = diagnose(simulate(body, false).timeline);
        EXPECT_FALSE(diagnosis.findings.empty());
        if (diagnosis.findings.empty()) return std::string();
        EXPECT_EQ(diagnosis.findings.front().kind, Kind::kLoaderWait);
        return diagnosis.findings.front().what;
    };
    const Frame receive{"/usr/lib/python3.12/multiprocessing/connection.py", 395, "_recv", false};
    const Frame get{"/usr/lib/python3.12/multiprocessing/queues.py", 103, "get", false};
    EXPECT_EQ(what({receive, get, user_line(37)}), "The GPU idles because the next batch is not ready.");
    EXPECT_NE(what({user_line(90, "read_file"), user_line(37)}).find("loads the next batch itself"), std::string::npos);
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
