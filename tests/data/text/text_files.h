#pragma once
#include <gtest/gtest.h>

#include <string>

#include "data/text/text_set.h"
#include "io/file.h"

namespace millrace::data::testing {

inline void write_texts(const Path& folder, const std::string& train, const std::string& valid, const std::string& test) {
    std::filesystem::create_directories(folder);
    const std::string* texts[] = {&train, &valid, &test};
    for (std::size_t part = 0; part < kPartCount; ++part)
        ASSERT_TRUE(io::write_atomically(folder / kTextFiles[part], *texts[part]).ok());
}

}  // namespace millrace::data::testing
