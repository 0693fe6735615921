#include "plot/page.h"

#include <gtest/gtest.h>

namespace millrace::plot {
namespace {

TEST(Page, LetsItsOwnScriptRunAndLoadsNothing) {
    const std::string page = html_page("a<b", "p{}", {"run()", "c3Vt"}, "<p>{}</p>");
    EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
    EXPECT_NE(page.find("script-src 'sha256-c3Vt'"), std::string::npos);
    EXPECT_NE(page.find("<title>a&lt;b</title>"), std::string::npos);
    EXPECT_NE(page.find("<style>p{}</style>\n</head>\n<body>\n<p>{}</p><script>run()</script>\n</body>\n</html>\n"),
              std::string::npos);
}

}  // namespace
}  // namespace millrace::plot
