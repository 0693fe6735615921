#include "sense/machine.h"

#include <gtest/gtest.h>

namespace millrace::sense {
namespace {

const std::vector<std::string> kUuids = {"GPU-70890bde-aa", "GPU-70891111-bb", "GPU-12345678-cc"};

VisibleDevices choose(const std::string& list) {
    return visible_devices(list, kUuids, [](const std::string& uuid) -> std::optional<int> {
        return uuid == "MIG-known" || uuid == "MIG-sibling" ? std::optional(1) : std::nullopt;
    });
}

TEST(VisibleDevices, NumbersAreTakenInTheirOrder) {
    EXPECT_EQ(choose("0").devices, (std::vector<int>{0}));
    EXPECT_EQ(choose("2,0").devices, (std::vector<int>{2, 0}));
    EXPECT_EQ(choose(" 1 , 2 ").devices, (std::vector<int>{1, 2}));
    EXPECT_EQ(choose("2,0").note, "");
}

TEST(VisibleDevices, AnInvalidEntryEndsTheList) {
    for (const char* list : {"1,-1,0", "1,7,0", "1,,0", "1,0x0,0", "1,GPU-zz,0", "1,99999999999999999999,0", "1,MIG-unknown,0"}) {
        const VisibleDevices chosen = choose(list);
        EXPECT_EQ(chosen.devices, (std::vector<int>{1})) << list;
        EXPECT_NE(chosen.note.find("CUDA_VISIBLE_DEVICES"), std::string::npos) << list;
    }
    EXPECT_TRUE(choose("-1").devices.empty());
    EXPECT_TRUE(choose("").devices.empty());
    EXPECT_TRUE(choose(",").devices.empty());
    EXPECT_TRUE(choose("NoDevFiles").devices.empty());
}

TEST(VisibleDevices, UuidsMayBeCutShortWhileUnique) {
    EXPECT_EQ(choose("GPU-70890bde-aa").devices, (std::vector<int>{0}));
    EXPECT_EQ(choose("GPU-12,GPU-70891").devices, (std::vector<int>{2, 1}));
    EXPECT_TRUE(choose("GPU-7089").devices.empty()) << "two begin like that";
}

TEST(VisibleDevices, MigInstancesStandForTheirGpuOnce) {
    EXPECT_EQ(choose("MIG-known").devices, (std::vector<int>{1}));
    EXPECT_EQ(choose("MIG-known,MIG-sibling").devices, (std::vector<int>{1}));
    EXPECT_EQ(choose("MIG-GPU-12345678-cc/1/0").devices, (std::vector<int>{2}));
    EXPECT_NE(choose("MIG-unknown").note.find("MIG-unknown"), std::string::npos);
}

TEST(VisibleDevices, ARepeatedEntryHidesEverything) {
    EXPECT_TRUE(choose("0,1,0").devices.empty());
    EXPECT_TRUE(choose("0,GPU-70890").devices.empty());
    EXPECT_NE(choose("0,0").note.find("twice"), std::string::npos);
}

}  // namespace
}  // namespace millrace::sense
