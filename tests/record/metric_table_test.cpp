#include "record/metric_table.h"

#include <gtest/gtest.h>

#include <set>

#include "io/file.h"
#include "models/registry.h"
#include "places.h"
#include "tools/metric_document.h"

namespace millrace::record {
namespace {

std::optional<double> value_of(const std::vector<Point>& points, std::string_view key) {
    for (const Point& point : points)
        if (key_of(*point.metric, point.index) == key) return point.value;
    return std::nullopt;
}

TEST(MetricTable, EveryEntryIsCompleteAndNamedOnce) {
    std::set<std::string_view> names;
    for (const MetricInfo& metric : metric_table()) {
        EXPECT_TRUE(names.insert(metric.name).second) << metric.name;
        EXPECT_EQ(metric.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_/"), std::string_view::npos) << metric.name;
        EXPECT_FALSE(metric.meaning.empty()) << metric.name;
        EXPECT_TRUE(metric.meaning.ends_with('.')) << metric.name;
        EXPECT_EQ(find_metric(metric.name), &metric);
        EXPECT_EQ(metric.name.starts_with("gpu/"), metric.scope == MetricScope::kGpu) << metric.name;
        EXPECT_EQ(metric.name.starts_with("core/"), metric.scope == MetricScope::kCore) << metric.name;
    }
    for (const char* field : {"kind", "time", "step"}) EXPECT_FALSE(names.contains(field));
    EXPECT_EQ(find_metric("gpu/unknown"), nullptr);
    EXPECT_EQ(find_metric(""), nullptr);
}

TEST(MetricTable, KeysCarryTheIndexAndLeadBack) {
    EXPECT_EQ(key_of(*find_metric("gpu/sm_active_percent"), 0), "gpu0/sm_active_percent");
    EXPECT_EQ(key_of(*find_metric("core/utilization_percent"), 3), "cpu3/utilization_percent");
    EXPECT_EQ(key_of(*find_metric("loss"), 2), "member_002/loss");
    EXPECT_EQ(key_of(*find_metric("component/step_ms"), 1234), "member_1234/component/step_ms");
    for (const MetricInfo& metric : metric_table()) {
        const bool indexed = metric.scope == MetricScope::kGpu || metric.scope == MetricScope::kCore;
        std::vector<int> indices;
        if (!indexed) indices.push_back(-1);
        if (metric.scope != MetricScope::kMachine) indices.insert(indices.end(), {0, 7, 11, 999, 1000});
        for (const int index : indices) {
            const auto back = metric_of_key(key_of(metric, index));
            ASSERT_TRUE(back.has_value()) << key_of(metric, index);
            EXPECT_EQ(back->first, &metric);
            EXPECT_EQ(back->second, index);
        }
    }
}

TEST(MetricTable, ForeignKeysAreNone) {
    for (const char* key : {"",
                            "/",
                            "gpu0",
                            "gpu0/",
                            "gpu/utilization_percent",
                            "gpu00/utilization_percent",
                            "gpu-1/lost",
                            "gpu99999999999999999999/lost",
                            "core/utilization_percent",
                            "core0/utilization_percent",
                            "cpu0/load_1m",
                            "member_03/loss",
                            "member_003/cpu/load_1m",
                            "member_/loss",
                            "member_003/",
                            "member_003/member_004/loss",
                            "kind",
                            "time",
                            "step",
                            "ram0/used_bytes",
                            "7/loss"})
        EXPECT_FALSE(metric_of_key(key).has_value()) << key;
}

TEST(MetricTable, AnEmptySampleHasNoPointButTheSamplersOwn) {
    const auto points = points_of(sense::Sample{});
    ASSERT_EQ(points.size(), 3u);
    for (const Point& point : points) EXPECT_TRUE(point.metric->name.starts_with("sampler/"));
}

TEST(MetricTable, PointsFollowTheTableAndLeaveOutWhatIsAbsent) {
    sense::Sample sample;
    sample.sequence = 4;
    sample.took = std::chrono::milliseconds{3};
    sample.cpu.utilization = 12.5;
    sample.cpu.cores = {10.0, std::nullopt, 30.0};
    sample.memory.used_bytes = 7e9;
    sample.gpus.resize(2);
    sample.gpus[0].utilization = 0;
    sample.gpus[0].throttle = sense::kThrottlePowerCap | sense::kThrottleHardware;
    sample.gpus[1].lost = true;
    const auto points = points_of(sample);
    EXPECT_EQ(value_of(points, "cpu/utilization_percent"), 12.5);
    EXPECT_EQ(value_of(points, "cpu0/utilization_percent"), 10.0);
    EXPECT_EQ(value_of(points, "cpu1/utilization_percent"), std::nullopt);
    EXPECT_EQ(value_of(points, "cpu2/utilization_percent"), 30.0);
    EXPECT_EQ(value_of(points, "ram/used_bytes"), 7e9);
    EXPECT_EQ(value_of(points, "gpu0/utilization_percent"), 0.0);
    EXPECT_EQ(value_of(points, "gpu0/throttle_reasons"), 5.0);
    EXPECT_EQ(value_of(points, "gpu1/utilization_percent"), std::nullopt);
    EXPECT_EQ(value_of(points, "gpu1/throttle_reasons"), std::nullopt);
    EXPECT_EQ(value_of(points, "gpu0/lost"), 0.0);
    EXPECT_EQ(value_of(points, "gpu1/lost"), 1.0);
    EXPECT_EQ(value_of(points, "sampler/ticks"), 5.0);
    EXPECT_EQ(value_of(points, "sampler/took_seconds"), 0.003);
    EXPECT_EQ(points.size(), 11u);
    for (std::size_t i = 1; i < points.size(); ++i)
        EXPECT_TRUE(std::pair(points[i - 1].metric, points[i - 1].index) < std::pair(points[i].metric, points[i].index));
}

TEST(MetricTable, EveryMetricOfTheMachineIsReadFromItsField) {
    // Each field gets a value of its own; a field that no entry reads, or two entries that read one, show up as a count.
    sense::Sample sample;
    double next = 1000;
    const auto fill = [&](auto&... fields) { ((fields = next++), ...); };
    auto& c = sample.cpu;
    fill(c.utilization, c.load_1m, c.load_5m, c.load_15m, c.limit_cores, c.throttled_percent, c.process_utilization,
         c.pressure_percent);
    auto& m = sample.memory;
    fill(m.total_bytes, m.used_bytes, m.available_bytes, m.page_cache_bytes, m.swap_total_bytes, m.swap_used_bytes, m.limit_bytes,
         m.process_bytes);
    auto& d = sample.disk;
    fill(d.read_bytes_per_second, d.write_bytes_per_second, d.request_bytes_per_second, d.cached_percent);
    fill(sample.process.count, sample.process.threads);
    sample.gpus.resize(1);
    auto& g = sample.gpus[0];
    fill(g.utilization, g.memory_utilization, g.memory_used_bytes, g.memory_total_bytes, g.process_memory_bytes, g.power_watts,
         g.power_limit_watts, g.implausible_power_watts, g.energy_joules, g.sm_clock_mhz, g.memory_clock_mhz,
         g.temperature_celsius, g.pcie_read_bytes_per_second, g.pcie_write_bytes_per_second, g.link_bytes_per_second,
         g.graphics_active, g.sm_active, g.sm_occupancy, g.tensor_active, g.dram_active, g.fp32_active, g.fp16_active);
    std::set<double> seen;
    for (const Point& point : points_of(sample))
        EXPECT_TRUE(point.value < 1000 || seen.insert(point.value).second) << point.metric->name;
    EXPECT_EQ(static_cast<double>(seen.size()), next - 1000);
}

TEST(MetricDocument, IsWhatTheTableSays) {
    const auto path = testing::source_root() / "docs/metrics.md";
    if (!std::filesystem::exists(path.parent_path())) GTEST_SKIP() << path.parent_path() << " is not on this machine";
    const auto text = io::read_text(path);
    ASSERT_TRUE(text.ok()) << text.error().text();
    (void)models::families();  // they bring metrics along
    EXPECT_TRUE(*text == metric_document()) << "docs/metrics.md is not what the table says: run `make docs`";
}

}  // namespace
}  // namespace millrace::record
