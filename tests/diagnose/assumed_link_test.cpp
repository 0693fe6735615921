#include "diagnose/reading/gpu_models.h"

#include <gtest/gtest.h>

namespace millrace::diagnose {
namespace {

/// Of a 16-lane link, in GB/s; -1 none.
int speed(std::string_view name, std::optional<ComputeCapability> capability = std::nullopt) {
    const auto found = assumed_link_speed(name, capability);
    return found ? static_cast<int>(*found / 1e9 + 0.5) : -1;
}

TEST(AssumedLink, NamesTellTheGeneration) {
    for (const char* name : {"NVIDIA H200", "NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA B200", "NVIDIA H20",
                             "NVIDIA GeForce RTX 5090", "NVIDIA RTX PRO 6000 Blackwell Server Edition"})
        EXPECT_EQ(speed(name), 63) << name;
    for (const char* name : {"NVIDIA A100-SXM4-80GB", "NVIDIA A10G", "NVIDIA L4", "NVIDIA L40S", "NVIDIA GeForce RTX 4090",
                             "NVIDIA GeForce RTX 3080 Ti", "NVIDIA RTX A6000", "NVIDIA RTX 6000 Ada Generation"})
        EXPECT_EQ(speed(name), 32) << name;
    for (const char* name : {"Tesla V100-SXM2-16GB", "Tesla T4", "Tesla P100-PCIE-16GB", "NVIDIA GeForce RTX 2080 Ti",
                             "Quadro RTX 8000", "NVIDIA GeForce GTX 1660"})
        EXPECT_EQ(speed(name), 16) << name;
}

TEST(AssumedLink, WhatHangsOnTheHostOtherwiseHasNone) {
    for (const char* name : {"NVIDIA GH200 480GB", "NVIDIA GB200", "NVIDIA GB10", "Orin", "", "Mock GPU 0", "AMD Instinct MI300X",
                             "RTX", "NVIDIA GeForce RTX", "--", "H1000", "XH200"})
        EXPECT_EQ(speed(name), -1) << name;
    EXPECT_EQ(speed("NVIDIA GH200 480GB", ComputeCapability{9, 0}), -1) << "the name knows better";
}

TEST(AssumedLink, UnknownNamesGoByTheirCapability) {
    EXPECT_EQ(speed("NVIDIA X", ComputeCapability{9, 0}), 63);
    EXPECT_EQ(speed("NVIDIA X", ComputeCapability{10, 3}), 63);
    EXPECT_EQ(speed("NVIDIA X", ComputeCapability{12, 0}), 63);
    EXPECT_EQ(speed("NVIDIA X", ComputeCapability{8, 9}), 32);
    EXPECT_EQ(speed("", ComputeCapability{7, 5}), 16);
    for (const ComputeCapability integrated : {ComputeCapability{7, 2}, {8, 7}, {11, 0}, {12, 1}})
        EXPECT_EQ(speed("", integrated), -1) << integrated.major;
    for (const ComputeCapability unknown : {ComputeCapability{0, 0}, {3, 5}, {13, 0}, {4'000'000'000, 1}})
        EXPECT_EQ(speed("", unknown), -1) << unknown.major;
}

TEST(AssumedLink, IsMarkedAndNeverReplacesWhatWasRead) {
    Timeline timeline;
    timeline.device_name = "NVIDIA H200";
    timeline.link_bytes_per_second = 15e9;
    assume_link(timeline);
    EXPECT_EQ(timeline.link_bytes_per_second, 15e9);
    EXPECT_FALSE(timeline.link_is_assumed);
    timeline.link_bytes_per_second.reset();
    assume_link(timeline);
    EXPECT_NEAR(timeline.link_bytes_per_second.value_or(0), 63e9, 0.1e9);
    EXPECT_TRUE(timeline.link_is_assumed);
    Timeline unknown;
    assume_link(unknown);
    EXPECT_FALSE(unknown.link_bytes_per_second || unknown.link_is_assumed);
}

}  // namespace
}  // namespace millrace::diagnose
