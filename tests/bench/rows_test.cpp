#include "bench/rows.h"
#include "base/json.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace millrace::bench {
namespace {

using Json = nlohmann::json;

/// Ten milliseconds for 5 TFLOP, of which three fifths had a flow; the ceiling is 800 TFLOP/s.
Row flow_row() {
    Row row;
    row.workload = {"energy_flow-experiment", "energy_flow", "experiment", 16, 1, false};
    row.workload.bar = 1.5;
    row.ours.device = "cuda: some GPU";
    row.ours.precision = "bf16";
    row.ours.windows = {10, 9, 11, 10, 10, 10, 10};
    row.ours.batch = 16;
    row.ours.flops = 5e12;
    row.ours.work = models::StepWork{240000, 400000, 10, true};
    row.ours.idle = 0.0125;
    row.ours.sm_active = 97.4;
    row.ours.tensor_active = 51.0;
    row.ours.memory_growth = 0;
    row.ceiling = 8e14;
    row.peers.peers = {{"eager", 40, 39, 41, ""}, {"compile+graph", 16, 15, 17, ""}, {"graph", 0, 0, 0, "out of memory"}};
    row.peers.versions = "torch 2.11";
    return row;
}

TEST(BenchRows, JsonHoldsTheFixedKeysAndWhatWasMeasuredBesides) {
    const Json rows = base::json_or_throw(rows_json({flow_row()}));
    ASSERT_EQ(rows.size(), 1u);
    const Json& row = rows[0];
    EXPECT_EQ(row.at("name"), "energy_flow-experiment");
    EXPECT_EQ(row.at("device"), "cuda");
    EXPECT_EQ(row.at("ours_ms"), 10);
    EXPECT_EQ(row.at("peers"), (Json{{"eager", 40.0}, {"compile+graph", 16.0}}));
    EXPECT_EQ(row.at("peer_errors"), (Json{{"graph", "out of memory"}}));
    EXPECT_EQ(row.at("fastest_peer"), "compile+graph");
    EXPECT_DOUBLE_EQ(row.at("ratio"), 1.6);
    EXPECT_EQ(row.at("bar"), 1.5);
    EXPECT_DOUBLE_EQ(row.at("samples_per_second"), 1600);
    const Json& work = row.at("work");
    EXPECT_DOUBLE_EQ(work.at("tflops"), 500);
    EXPECT_DOUBLE_EQ(work.at("of_gemm"), 0.625);
    EXPECT_DOUBLE_EQ(work.at("counted_tflops"), 300);
    EXPECT_DOUBLE_EQ(work.at("counted_of_gemm"), 0.375);
    EXPECT_DOUBLE_EQ(work.at("flop_per_flow_step"), 12.5e6);
    EXPECT_DOUBLE_EQ(row.at("gemm_tflops"), 800);
    EXPECT_EQ(row.at("idle"), 0.0125);
    EXPECT_EQ(row.at("memory_growth_bytes"), 0);
    EXPECT_FALSE(row.contains("parts_ms"));
}

TEST(BenchRows, WhatWasNotMeasuredIsAbsentAndNeverZero) {
    Row row = flow_row();
    row.workload.bar = 0;
    row.ours.idle = row.ours.sm_active = row.ours.tensor_active = std::nullopt;
    row.ours.work->all_computed = false;
    row.ours.memory_growth = std::nullopt;
    row.ceiling = std::nullopt;
    row.peers = {};
    row.peers.reason = "--no-peers";
    const Json json = base::json_or_throw(rows_json({row}))[0];
    for (const char* key : {"bar", "idle", "sm_active", "tensor_active", "memory_growth_bytes", "gemm_tflops", "ratio"})
        EXPECT_FALSE(json.contains(key)) << key;
    EXPECT_FALSE(json.at("work").contains("tflops"));  // rows were left out: nobody knows how much was computed
    EXPECT_DOUBLE_EQ(json.at("work").at("counted_tflops"), 300);
    EXPECT_FALSE(json.at("work").contains("counted_of_gemm"));
    EXPECT_NE(table_line(row).find("no peer: --no-peers"), std::string::npos);
}

TEST(BenchRows, LineShowsRatioBarRatesAndActivity) {
    const std::string line = table_line(flow_row());
    for (const char* cell : {"energy_flow-experiment", "10.0000", "1.60x", "1.5x", "500 (62 %)", "300 (38 %)", "1.25 %", "97 %",
                             "51 %", "compile+graph 16.0000", "graph failed (out of memory)"})
        EXPECT_NE(line.find(cell), std::string::npos) << cell << " in " << line;
    const std::string header = table_header(flow_row());
    EXPECT_NE(header.find("800 TFLOP/s"), std::string::npos) << header;
    const std::string titles = header.substr(header.find('\n') + 1);
    EXPECT_EQ(titles.find("peers ms"), line.find("eager 40"));  // columns stand below their titles
}

TEST(BenchRows, RowsMeasuredTwiceKeepTheWorseIdleAndMeanActivity) {
    OurTimes times = flow_row().ours, later = times;
    later.windows = {20};
    later.idle = 0.5;
    later.sm_active = 99.4;
    later.tensor_active = std::nullopt;
    later.memory_growth = 4096;
    times.add(later);
    EXPECT_EQ(times.windows.size(), 8u);
    EXPECT_EQ(times.idle, 0.5);
    EXPECT_DOUBLE_EQ(*times.sm_active, 98.4);
    EXPECT_EQ(times.tensor_active, 51.0);
    EXPECT_EQ(times.memory_growth, 4096);
}

}  // namespace
}  // namespace millrace::bench
