#pragma once
// How many slots belong to a record: some kinds carry parts in the slots behind them. For readers of records that another process
// wrote, so every count is checked against a bound.

#include <cstdint>
#include <optional>

#include "record/probe_records.h"

namespace millrace::record {

constexpr std::uint32_t kPartsPerSlot = 4;  ///< SiteFrame and Argument

/// Slots that follow `record` as its parts. Absent when it is none of ours: an unknown kind, or more parts than are ever written.
constexpr std::optional<std::uint32_t> parts_behind(const Record& record) {
    const auto slots = [](std::uint32_t count, std::uint32_t per_slot) { return (count + per_slot - 1) / per_slot; };
    switch (record.kind) {
        case RecordKind::kCall:
        case RecordKind::kWork:
        case RecordKind::kRange:
        case RecordKind::kPulse:
        case RecordKind::kWindow:
        case RecordKind::kMemory:
        case RecordKind::kLost:
        case RecordKind::kLeft: return 0;
        case RecordKind::kText:
            if (record.bytes > kMaxTextBytes) return std::nullopt;
            return slots(static_cast<std::uint32_t>(record.bytes), sizeof(Record));
        case RecordKind::kSite:
            if (record.count > kMaxSiteFrames) return std::nullopt;
            return slots(record.count, kPartsPerSlot);
        case RecordKind::kArguments:
            if (record.count > kMaxArguments) return std::nullopt;
            return slots(record.count, kPartsPerSlot);
        case RecordKind::kNone: break;
    }
    return std::nullopt;
}

/// More than any record with its parts takes.
constexpr std::uint32_t kMostSlots = 1 + kMaxArguments / kPartsPerSlot;
static_assert(kMaxTextBytes / sizeof(Record) < kMostSlots && kMaxSiteFrames / kPartsPerSlot < kMostSlots);

}  // namespace millrace::record
