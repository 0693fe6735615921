#include "plot/page.h"

#include <fmt/format.h>

#include "plot/svg.h"

namespace millrace::plot {

std::string html_page(std::string_view title, std::string_view style, const PageScript& script, std::string_view body) {
    return fmt::format(R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; script-src 'sha256-{}'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{}</title>
<link rel="icon" href="data:,">
<style>{}{}</style>
</head>
<body>
{}<script>{}</script>
</body>
</html>
)",
                       script.sha256, xml_text(title), page_style(), style, body, script.text);
}

}  // namespace millrace::plot
