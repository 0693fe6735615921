#include "report/watch_record.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "report/made_up.h"

namespace millrace::report {
namespace {

std::set<std::string> kinds(const std::vector<Finding>& findings) {
    std::set<std::string> out;
    for (const Finding& finding : findings) out.insert(finding.kind);
    return out;
}

template <class Change>
std::set<std::string> judged(std::size_t gpus, const Change& change, bool has_activity = true, std::uint64_t samples = 20) {
    return kinds(verdict(made_up_record(gpus, change, has_activity, samples)));
}

void set_activity(sense::Sample& sample, double sm, double tensor, double dram, double fp32 = 5) {
    for (sense::GpuReading& gpu : sample.gpus) {
        gpu.sm_active = sm;
        gpu.tensor_active = tensor;
        gpu.dram_active = dram;
        gpu.fp32_active = fp32;
    }
}

using Kinds = std::set<std::string>;

TEST(Verdict, ResidentKernelsOnAnEmptyChipAreNotCalledBusy) {
    const auto record = made_up_record(1, [](sense::Sample& sample) { set_activity(sample, 12, 1, 3); });
    const auto findings = verdict(record);
    EXPECT_EQ(kinds(findings), (Kinds{"resident_not_busy", "cpu_has_room"}));
    EXPECT_EQ(findings.front().gpu, 0);
    EXPECT_EQ(findings.front().severity, Severity::kWarning);
    EXPECT_NE(findings.front().evidence.find("utilisation 95 %"), std::string::npos) << findings.front().evidence;
    EXPECT_NE(findings.front().evidence.find("SM active 12 %"), std::string::npos);
    EXPECT_NE(findings.front().evidence.find("power 50 %"), std::string::npos);
}

TEST(Verdict, BusyChipsAreToldApartByWhatTheyDo) {
    EXPECT_EQ(judged(1, [](sense::Sample& s) { set_activity(s, 92, 55, 40); }), (Kinds{"busy_arithmetic", "cpu_has_room"}));
    EXPECT_EQ(judged(1, [](sense::Sample& s) { set_activity(s, 92, 2, 72); }), (Kinds{"memory_bound", "cpu_has_room"}));
    EXPECT_EQ(judged(1, [](sense::Sample& s) { set_activity(s, 92, 2, 10); }), (Kinds{"busy_waiting", "cpu_has_room"}));
    EXPECT_EQ(judged(1, [](sense::Sample& s) { set_activity(s, 60, 2, 10, 45); }), (Kinds{"busy_arithmetic", "cpu_has_room"}));
}

TEST(Verdict, WithoutCountersUtilisationProvesIdlenessOnly) {
    EXPECT_EQ(judged(
                  1, [](sense::Sample&) {}, false),
              (Kinds{"utilization_only", "cpu_has_room"}));
    EXPECT_EQ(judged(
                  1, [](sense::Sample& s) { s.gpus[0].utilization = 35; }, false),
              (Kinds{"gpu_partly_used", "cpu_has_room"}));
    EXPECT_EQ(judged(
                  1, [](sense::Sample& s) { s.gpus[0].utilization = s.sequence % 4 == 0 ? 100 : 0; }, false),
              (Kinds{"gpu_idle", "cpu_has_room"}));
    EXPECT_EQ(judged(
                  1, [](sense::Sample& s) { s.gpus[0].utilization = 0; }, false),
              (Kinds{"gpu_unused", "cpu_has_room"}));
}

TEST(Verdict, WorkThatComesAndGoesIsNamed) {
    EXPECT_TRUE(judged(
                    1, [](sense::Sample& s) { s.gpus[0].utilization = s.sequence % 3 == 0 ? 2 : 98; }, false)
                    .contains("gpu_fluctuates"));
    EXPECT_FALSE(judged(
                     1, [](sense::Sample&) {}, false)
                     .contains("gpu_fluctuates"));
}

TEST(Verdict, AFullCoreBesideAnIdleGpuIsTheHost) {
    const auto change = [](sense::Sample& sample) {
        sample.gpus[0].utilization = 4;
        sample.cpu.cores[2] = 99;
    };
    EXPECT_EQ(judged(1, change, false), (Kinds{"gpu_idle", "cpu_holds_gpu", "one_core_full"}));
    // Never at the same time: no evidence, no claim.
    const auto apart = [](sense::Sample& sample) {
        const bool idle = sample.sequence % 5 != 0;
        sample.gpus[0].utilization = idle ? 4 : 90;
        sample.cpu.cores[2] = idle ? 5 : 99;
    };
    EXPECT_EQ(judged(1, apart, false), (Kinds{"gpu_idle", "cpu_has_room"}));
}

TEST(Verdict, ThrottlingNamesShareAndReason) {
    const auto change = [](sense::Sample& sample) {
        set_activity(sample, 92, 55, 40);
        if (sample.sequence % 4 == 0) sample.gpus[0].throttle = sense::kThrottlePowerCap;
    };
    const auto findings = verdict(made_up_record(1, change));
    const auto found = std::find_if(findings.begin(), findings.end(), [](const Finding& f) { return f.kind == "gpu_throttled"; });
    ASSERT_NE(found, findings.end());
    EXPECT_NE(found->text.find(sense::throttle_text(sense::kThrottlePowerCap)), std::string::npos);
    EXPECT_NE(found->evidence.find("25 %"), std::string::npos) << found->evidence;
    const auto rare = [](sense::Sample& sample) {
        if (sample.sequence == 3) sample.gpus[0].throttle = sense::kThrottlePowerCap;
    };
    EXPECT_FALSE(judged(1, rare, false, 40).contains("gpu_throttled"));
}

TEST(Verdict, MemoryAndSwapNeedTheirEvidence) {
    EXPECT_TRUE(judged(1, [](sense::Sample& s) { s.gpus[0].memory_used_bytes = 23.5 * kGiB; }).contains("gpu_memory_edge"));
    EXPECT_FALSE(judged(1, [](sense::Sample& s) { s.gpus[0].memory_used_bytes = 22 * kGiB; }).contains("gpu_memory_edge"));
    EXPECT_TRUE(judged(0, [](sense::Sample& s) { s.memory.used_bytes = 63 * kGiB; }).contains("memory_edge"));
    EXPECT_TRUE(judged(0, [](sense::Sample& s) { s.memory.swap_used_bytes = 1 * kGiB; }).contains("swap_in_use"));
    EXPECT_TRUE(judged(0, [](sense::Sample& s) {
                    s.memory.swap_used_bytes = static_cast<double>(s.sequence) * kGiB;
                }).contains("swapping"));
    EXPECT_FALSE(judged(0, [](sense::Sample&) {}).contains("swap_in_use"));
}

TEST(Verdict, WithoutAGpuTheProcessorIsJudgedAlone) {
    const auto findings = verdict(made_up_record(0, [](sense::Sample&) {}));
    EXPECT_EQ(kinds(findings), (Kinds{"no_gpu", "cpu_has_room"}));
    EXPECT_EQ(findings.front().evidence, "no driver");
    EXPECT_EQ(judged(0, [](sense::Sample& s) { s.cpu.utilization = 97; }), (Kinds{"no_gpu", "cpu_full"}));
    EXPECT_TRUE(judged(0, [](sense::Sample& s) { s.cpu.throttled_percent = 30; }).contains("cpu_quota"));
    const auto full_with_tree = [](double tree) {
        return judged(0, [tree](sense::Sample& s) {
            s.cpu.utilization = 97;
            s.cpu.process_utilization = tree;
        });
    };
    EXPECT_EQ(full_with_tree(380), (Kinds{"no_gpu", "cpu_full"}));
    EXPECT_EQ(full_with_tree(65), (Kinds{"no_gpu", "cpu_taken_by_others"})) << "65 % of one core out of four";
}

TEST(Verdict, TooFewSamplesAbstainButKeepTheFacts) {
    const auto change = [](sense::Sample& sample) {
        sample.gpus[0].utilization = 0;
        sample.gpus[0].memory_used_bytes = 23.9 * kGiB;
    };
    EXPECT_EQ(judged(1, change, true, 9), (Kinds{"too_few_samples", "gpu_memory_edge"}));
    EXPECT_FALSE(judged(1, change, true, 10).contains("too_few_samples"));
    EXPECT_EQ(kinds(verdict(WatchRecord({}, std::chrono::seconds{1}))), (Kinds{"too_few_samples", "no_gpu"}));
}

TEST(Verdict, AbsentReadingsAreNeverCalledIdle) {
    const auto nothing = [](sense::Sample& sample) {
        sample.gpus[0] = {};
        sample.cpu = {};
        sample.memory = {};
    };
    EXPECT_EQ(judged(1, nothing), (Kinds{"gpu_unread", "cpu_unread"}));
    const auto lost = [](sense::Sample& sample) {
        if (sample.sequence < 12) return;
        sample.gpus[0] = {};
        sample.gpus[0].lost = true;
    };
    EXPECT_EQ(judged(1, lost, false), (Kinds{"utilization_only", "gpu_lost", "cpu_has_room"}));
}

TEST(Verdict, EachGpuIsJudgedByItself) {
    const auto findings = verdict(made_up_record(2, [](sense::Sample& sample) {
        set_activity(sample, 90, 50, 20);
        sample.gpus[1].utilization = 0;
        sample.gpus[1].sm_active = 0;
    }));
    ASSERT_GE(findings.size(), 2u);
    EXPECT_EQ(findings[0].kind, "busy_arithmetic");
    EXPECT_EQ(findings[0].gpu, 0);
    EXPECT_EQ(findings[1].kind, "gpu_unused");
    EXPECT_EQ(findings[1].gpu, 1);
}

}  // namespace
}  // namespace millrace::report
