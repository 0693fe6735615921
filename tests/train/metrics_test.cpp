#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "train/metrics_reader.h"
#include "train/metrics_thread.h"
#include "train/run_log.h"
#include "train/step_sums.h"

namespace millrace::train {
namespace {

class FakeRing {
public:
    FakeRing(std::uint32_t capacity, int members)
        : rows(std::size_t{capacity} * static_cast<std::size_t>(members)), capacity_(capacity), members_(members) {}
    void push(double loss, std::uint32_t nonfinite = 0) {
        ++sequence_;
        for (int k = 0; k < members_; ++k) {
            ops::MetricsRow& row = rows[sequence_ % capacity_ * static_cast<std::size_t>(members_) + static_cast<std::size_t>(k)];
            row.step = static_cast<std::uint32_t>(sequence_);
            row.rows = 4;
            row.correct = 2;
            row.loss = 4 * (loss + k);
            row.nonfinite = nonfinite;
            row.sequence = sequence_;
        }
    }
    std::vector<ops::MetricsRow> rows;

private:
    std::uint32_t capacity_;
    int members_;
    std::uint64_t sequence_ = 0;
};

TEST(MetricsReader, EmptyRingGivesNothing) {
    FakeRing ring(5, 1);
    MetricsReader reader(ring.rows.data(), 5, 1);
    EXPECT_EQ(reader.drain([](RingRows) { FAIL(); }), 0u);
    EXPECT_FALSE(reader.arrived(1));
}

TEST(MetricsReader, EveryStepArrivesOnceAndInOrderAroundTheRing) {
    FakeRing ring(5, 2);
    MetricsReader reader(ring.rows.data(), 5, 2);
    std::vector<std::uint32_t> seen;
    for (int round = 0; round < 7; ++round) {
        for (int i = 0; i < 3; ++i) ring.push(round);
        EXPECT_EQ(reader.drain([&](RingRows rows) {
            ASSERT_EQ(rows.size(), 2u);
            seen.push_back(rows[0].step);
        }),
                  3u);
    }
    ASSERT_EQ(seen.size(), 21u);
    for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], i + 1);
    EXPECT_EQ(reader.consumed(), 21u);
}

TEST(MetricsReader, HalfWrittenStepWaitsForItsLastMember) {
    FakeRing ring(4, 2);
    MetricsReader reader(ring.rows.data(), 4, 2);
    ring.push(1);
    ring.rows[2 + 1].sequence = 0;
    EXPECT_EQ(reader.drain([](RingRows) { FAIL(); }), 0u);
    ring.rows[2 + 1].sequence = 1;
    EXPECT_EQ(reader.drain([](RingRows) {}), 1u);
}

TEST(StepSums, DroppedStepsStayOutOfTheMeans) {
    FakeRing ring(8, 2);
    StepSums sums(2);
    MetricsReader reader(ring.rows.data(), 8, 2);
    ring.push(1);
    ring.push(std::numeric_limits<double>::quiet_NaN(), 1);
    ring.push(3);
    reader.drain([&](RingRows rows) { sums.add(rows); });
    EXPECT_EQ(sums.members[0].mean_loss(), 2);
    EXPECT_EQ(sums.members[1].mean_loss(), 3);
    EXPECT_EQ(sums.members[0].loss_min, 1);
    EXPECT_EQ(sums.members[0].loss_max, 3);
    EXPECT_EQ(sums.members[0].accuracy(), 0.5);
    EXPECT_EQ(sums.mean_loss(), 2.5);
    EXPECT_EQ(sums.dropped(), 2u);
    EXPECT_EQ(sums.steps(), 3u);
    EXPECT_EQ(sums.last_step, 3u);
}

TEST(StepSums, NothingMeasuredIsNotZero) {
    const StepSums sums(1);
    EXPECT_TRUE(std::isnan(sums.mean_loss()));
    EXPECT_TRUE(std::isnan(sums.members[0].accuracy()));
    const Row row = interval_row({}, sums, {});
    for (const record::Metric& metric : row)
        if (metric.first == "loss" || metric.first == "loss_min") {
            EXPECT_TRUE(std::isnan(std::get<double>(metric.second))) << metric.first;
        }
}

TEST(MetricsRows, MembersFollowTheirMeans) {
    FakeRing ring(8, 2);
    StepSums sums(2);
    ring.push(1);
    sums.add({ring.rows.data() + 2, 2});
    double all = 0, second = 0;
    for (const auto& [key, value] : interval_row({}, sums, {})) {
        if (key == "loss") all = std::get<double>(value);
        if (key == "member_001/loss") second = std::get<double>(value);
    }
    EXPECT_EQ(all, 1.5);
    EXPECT_EQ(second, 2);
}

TEST(MetricsRows, LossScaleIsShownInF16Alone) {
    FakeRing ring(8, 2);
    StepSums sums(2);
    ring.push(1);
    ring.rows[3].loss_scale = 512;
    sums.add({ring.rows.data() + 2, 2});
    const auto shown = [&](bool scales_loss) {
        IntervalReport report;
        report.scales_loss = scales_loss;
        double found = 0;
        for (const auto& [key, value] : interval_row(report, sums, {}))
            if (key == "member_001/loss_scale") found = std::get<double>(value);
        return found;
    };
    EXPECT_EQ(shown(true), 512);
    EXPECT_EQ(shown(false), 0);
}

TEST(SpeedMeter, PausesCountForNothing) {
    using std::chrono::seconds;
    SpeedMeter meter;
    meter.start(seconds{10});
    meter.add(4, 400);
    EXPECT_EQ(meter.average(seconds{12}).samples, 200);
    meter.pause(seconds{12});
    EXPECT_EQ(meter.average(seconds{50}).samples, 200);
    meter.resume(seconds{50});
    meter.add(2, 200);
    EXPECT_EQ(meter.seconds(seconds{52}), 4);
    EXPECT_EQ(meter.average(seconds{52}).samples, 150);
}

TEST(SpeedMeter, RecentForgetsWhatWasAskedBefore) {
    using std::chrono::seconds;
    SpeedMeter meter;
    meter.start(seconds{0});
    meter.add(10, 1000);
    EXPECT_EQ(meter.recent(seconds{1}).steps, 10);
    meter.add(30, 60);
    EXPECT_EQ(meter.recent(seconds{2}).steps, 30);
    EXPECT_EQ(meter.recent(seconds{2}).steps, 0);
}

}  // namespace
}  // namespace millrace::train
