#include "diagnose/answer/diagnosis.h"

#include <gtest/gtest.h>

#include <set>

namespace millrace::diagnose {
namespace {

TEST(DiagnosisNames, StableKeysStayWhatProgramsRead) {
    EXPECT_EQ(name_of(Kind::kHostSync), "host-sync");
    EXPECT_EQ(name_of(Kind::kFileOutput), "file-output");
    EXPECT_EQ(name_of(Kind::kStraggler), "straggler");
    EXPECT_EQ(name_of(Owner::kCompute), "compute");
    EXPECT_EQ(name_of(Owner::kLaunchBound), "launch-bound");
    EXPECT_EQ(name_of(Owner::kGarbageCollection), "gc");
    EXPECT_EQ(name_of(Owner::kUnexplained), "unexplained");
    EXPECT_EQ(name_of(Severity::kCritical), "critical");
}

TEST(DiagnosisNames, AllOfAKindDiffer) {
    std::set<std::string_view> owners, kinds;
    for (std::size_t i = 0; i < kOwners; ++i) owners.insert(name_of(static_cast<Owner>(i)));
    for (std::size_t i = 0; i < kKinds; ++i) kinds.insert(name_of(static_cast<Kind>(i)));
    EXPECT_EQ(owners.size(), kOwners);
    EXPECT_EQ(kinds.size(), kKinds);
}

}  // namespace
}  // namespace millrace::diagnose
