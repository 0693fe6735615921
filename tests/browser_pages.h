#pragma once
#include <cstdlib>
#include <fstream>
#include <string>

#include "temporary_folder.h"

namespace millrace::test {

/// Pages that a test below tests/tools opens in a browser, in the folder MILLRACE_REPORTS_TO, with the one script that they may
/// run and its hash.
class BrowserPages {
public:
    BrowserPages(std::string_view script, std::string_view hash) : script_(script), hash_(hash) {
        write("script.js", script_);
        write("script.sha256", hash_);
    }

    [[nodiscard]] std::filesystem::path folder() const {
        const char* given = std::getenv("MILLRACE_REPORTS_TO");
        return given != nullptr ? std::filesystem::path(given) : own_.path();
    }
    void write(const char* name, const std::string& text) const {
        std::ofstream out(folder() / name, std::ios::binary);
        out << text;
        out.close();
        EXPECT_TRUE(out.good()) << folder() / name;
    }
    void write_page(const char* name, const std::string& page) const {
        EXPECT_NE(page.find("<script>" + script_ + "</script>"), std::string::npos) << name;
        EXPECT_NE(page.find("'sha256-" + hash_ + "'"), std::string::npos) << name;
        write(name, page);
    }

private:
    TemporaryFolder own_;
    std::string script_, hash_;
};

}  // namespace millrace::test
