#include "record/probe_reader.h"

#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "record/fake_probe.h"
#include "record/probe_records.h"
#include "temporary_folder.h"

namespace millrace::record {
namespace {

using test::FakeProbe;

Record call(std::uint64_t begin) {
    Record record;
    record.kind = RecordKind::kCall;
    record.begin = begin;
    return record;
}

struct Drained {
    std::vector<Record> slots;
    void operator()(std::uint16_t, std::span<const Record> more) { slots.insert(slots.end(), more.begin(), more.end()); }
};

TEST(ProbeReader, TakesRecordsOnceAndInOrderAroundTheRing) {
    const test::TemporaryFolder folder;
    FakeProbe probe(folder.path());
    auto reader = ProbeReader::open(probe.path());
    ASSERT_TRUE(reader.ok()) << reader.error().text();
    std::uint64_t next = 0, seen = 0;
    for (int round = 0; round < 9; ++round) {
        for (int at = 0; at < 20'011; ++at) ASSERT_TRUE(probe.write(3, {call(next++)}));
        Drained drained;
        reader->drain(std::ref(drained));
        for (const Record& record : drained.slots) ASSERT_EQ(record.begin, seen++);
        ASSERT_EQ(seen, next);
    }
    EXPECT_EQ(probe.header().lanes[3].read.load(), next);
    EXPECT_EQ(reader->damaged(), 0u);
    EXPECT_EQ(reader->lost(), 0u);
}

TEST(ProbeReader, FullLaneLosesAndSaysSo) {
    const test::TemporaryFolder folder;
    FakeProbe probe(folder.path());
    auto reader = ProbeReader::open(probe.path());
    ASSERT_TRUE(reader.ok());
    for (std::uint32_t at = 0; at < kLaneSlots + 10; ++at) probe.write(0, {call(at)});
    EXPECT_EQ(reader->lost(), 10u);
    Drained drained;
    reader->drain(std::ref(drained));
    EXPECT_EQ(drained.slots.size(), kLaneSlots);
    EXPECT_TRUE(probe.write(0, {call(1)}));
}

TEST(ProbeReader, PartsComeWithTheirRecordAlsoWhenTheyAreLate) {
    const test::TemporaryFolder folder;
    FakeProbe probe(folder.path());
    auto reader = ProbeReader::open(probe.path());
    ASSERT_TRUE(reader.ok());
    Record text;
    text.kind = RecordKind::kText;
    text.bytes = 100;
    ASSERT_TRUE(probe.write(5, {call(1), text, Record{}}));  // the second part is not there yet
    Drained drained;
    reader->drain(std::ref(drained));
    ASSERT_EQ(drained.slots.size(), 1u);
    reader->drain(std::ref(drained));
    ASSERT_EQ(drained.slots.size(), 1u);
    ASSERT_TRUE(probe.write(5, {Record{}, call(2)}));
    reader->drain(std::ref(drained));
    ASSERT_EQ(drained.slots.size(), 5u);
    EXPECT_EQ(drained.slots[4].begin, 2u);
    EXPECT_EQ(reader->damaged(), 0u);
}

TEST(ProbeReader, OrdersReachTheProbeOnceEach) {
    const test::TemporaryFolder folder;
    FakeProbe probe(folder.path());
    auto reader = ProbeReader::open(probe.path());
    ASSERT_TRUE(reader.ok());
    EXPECT_FALSE(reader->report().obeyed);
    reader->give({ProbeMode::kFull, CallKind::kGraphLaunch, 50, 10});
    const std::uint32_t epoch = probe.header().control.epoch.load();
    reader->give({ProbeMode::kFull, CallKind::kGraphLaunch, 50, 10});
    EXPECT_EQ(probe.header().control.epoch.load(), epoch);
    EXPECT_FALSE(reader->report().obeyed);
    EXPECT_EQ(probe.obey(), ProbeMode::kFull);
    EXPECT_TRUE(reader->report().obeyed);
    EXPECT_EQ(probe.header().control.full_calls.load(), 50u);
    EXPECT_EQ(probe.header().control.sites_calls.load(), 10u);
    reader->keep_alive(77);
    EXPECT_EQ(probe.header().control.keeper_time.load(), 77u);
    probe.header().state.fault.store(static_cast<std::uint32_t>(ProbeFault::kOtherClient));
    std::memset(probe.header().state.incumbent, 'n', sizeof probe.header().state.incumbent);
    probe.header().state.incumbent[1] = '\n';
    EXPECT_EQ(reader->report().fault, ProbeFault::kOtherClient);
    EXPECT_EQ(reader->report().incumbent.substr(0, 3), "n?n");
    EXPECT_EQ(reader->report().incumbent.size(), sizeof probe.header().state.incumbent);
}

TEST(ProbeReader, ScribbledMappingIsPassedOver) {
    const test::TemporaryFolder folder;
    FakeProbe probe(folder.path());
    auto reader = ProbeReader::open(probe.path());
    ASSERT_TRUE(reader.ok());
    std::mt19937_64 random(5);
    std::uint64_t handed = 0;
    for (int round = 0; round < 300; ++round) {
        for (int word = 0; word < 64; ++word) {
            auto* header = reinterpret_cast<std::uint64_t*>(&probe.header());
            header[random() % (sizeof(ProbeHeader) / 8)] = random() >> (random() % 64);
        }
        for (int at = 0; at < 200; ++at) {
            Record& slot = probe.slot(static_cast<std::uint32_t>(random() % kLanes), random());
            auto* words = reinterpret_cast<std::uint64_t*>(&slot);
            for (int word = 0; word < 8; ++word) words[word] = random();
            if (random() % 2 == 0) slot.kind = static_cast<RecordKind>(random() % 14);
        }
        reader->drain([&](std::uint16_t lane, std::span<const Record> slots) {
            ASSERT_LT(lane, kLanes);
            ASSERT_LE(slots.size(), kLaneSlots);
            for (std::size_t at = 0; at < slots.size();) {
                const auto parts = parts_behind(slots[at]);
                ASSERT_TRUE(parts && at + *parts < slots.size());
                at += 1 + *parts;
            }
            handed += slots.size();
        });
        static_cast<void>(reader->report());
        static_cast<void>(reader->lost());
    }
    EXPECT_GT(reader->damaged(), 0u);
    EXPECT_LE(handed, 300u * kLanes * kLaneSlots);
}

TEST(ProbeReader, FileThatBecomesShorterIsBroken) {
    const test::TemporaryFolder folder;
    FakeProbe probe(folder.path());
    auto reader = ProbeReader::open(probe.path());
    ASSERT_TRUE(reader.ok());
    ASSERT_TRUE(probe.write(7, {call(1)}));
    ASSERT_EQ(::ftruncate(probe.descriptor(), kHeaderBytes), 0);
    Drained drained;
    reader->drain(std::ref(drained));
    EXPECT_TRUE(reader->broken());
    EXPECT_TRUE(drained.slots.empty());
    ASSERT_EQ(::ftruncate(probe.descriptor(), 0), 0);
    reader->drain(std::ref(drained));
    reader->give({});
    reader->keep_alive(1);
    EXPECT_FALSE(reader->report().obeyed);
}

TEST(ProbeReader, FilesThatAreNoMappingsAreRefused) {
    const test::TemporaryFolder folder;
    std::ofstream(folder / "1.probe") << "short";
    EXPECT_FALSE(ProbeReader::open(folder / "1.probe").ok());
    EXPECT_FALSE(ProbeReader::open(folder / "2.probe").ok());
    EXPECT_FALSE(ProbeReader::open(folder.path()).ok());
    FakeProbe probe(folder.path());
    probe.header().state.magic.store(0);
    EXPECT_FALSE(ProbeReader::open(probe.path()).ok());
    std::filesystem::create_symlink(probe.path(), folder / "3.probe");
    probe.header().state.magic.store(kProbeMagic);
    EXPECT_FALSE(ProbeReader::open(folder / "3.probe").ok()) << "links lead elsewhere";
    EXPECT_TRUE(ProbeReader::open(probe.path()).ok());
}

}  // namespace
}  // namespace millrace::record
