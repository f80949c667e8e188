"""The page in a real browser, used as a person would: looked at, filtered, clicked, typed at."""

import pytest

from gpucheck.model import Verdict
from gpucheck.render.write.fleet_page import to_html
from tests.browser import all_of, count, crowded, find, screen, wait, whole_screen
from tests.fleet.reports import bad, merged, report
from tests.fleet.test_digests import compared, measured, trained

pytestmark = pytest.mark.browser
EVIL = "evil</script><img src=x onerror=document.title='owned'>"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """2,000 healthy hosts in racks, a slow one, a failing one and one with a hostile name."""
    hosts = [
        report(f"n{i:04d}", 380.0 + (i % 7 - 3) * 0.6, attributes={"rack": (f"r{i // 40:02d}",)}) for i in range(2000)
    ]
    sick = report("n2000", verdict=Verdict.FAIL, findings=(bad(),), attributes={"rack": ("r50",)})
    evil = report(EVIL, verdict=Verdict.FAIL, findings=(bad(seen=EVIL),), attributes={EVIL: (EVIL,)})
    path = tmp_path_factory.mktemp("page") / "fleet.html"
    path.write_text(to_html(merged(*hosts, report("n2001", 320.0), sick, evil)), encoding="utf-8")
    return path


@pytest.fixture
def opened(browser, page):
    browser.get("about:blank")
    browser.get(page.as_uri())
    return browser


def test_every_host_is_a_cell_told_by_shape_and_words(opened):
    assert count(opened, "#cells .cell") == 2003
    cell = find(opened, "#cells .cell.fail")
    assert cell.text == "\u00d7"
    assert "FAIL" in cell.get_attribute("aria-label")


def test_a_click_on_a_cell_opens_the_host_and_escape_closes_it(opened):
    from selenium.webdriver.common.keys import Keys

    find(opened, "#cells .cell[data-host='n2000']").click()

    assert find(opened, "#host-name").text == "n2000"
    assert "a link is down" in find(opened, "dialog").text
    assert opened.current_url.endswith("#host=n2000")
    opened.switch_to.active_element.send_keys(Keys.ESCAPE)
    wait(opened, lambda: not opened.execute_script("return document.getElementById('host').open"))
    assert opened.execute_script("return document.activeElement.dataset.host") == "n2000"


def test_an_address_of_a_host_works_in_an_open_tab(opened):
    for name in ("n2000", "n0007"):
        opened.execute_script("location.hash = arguments[0]", f"host={name}")
        wait(opened, lambda name=name: find(opened, "#host-name").text == name)
    opened.execute_script("location.hash = ''")
    wait(opened, lambda: not opened.execute_script("return document.getElementById('host').open"))


def test_the_verdict_tiles_filter(opened):
    find(opened, ".tile[data-verdict='fail']").click()

    assert count(opened, "#cells .cell") == 2
    assert find(opened, "#shown").text == "2 of 2,003 hosts"
    find(opened, "#clear").click()
    assert count(opened, "#cells .cell") == 2003


def test_search_finds_hosts_by_attribute_and_says_when_there_are_none(opened):
    from selenium.webdriver.common.keys import Keys

    find(opened, "body").send_keys("/")
    search = opened.switch_to.active_element
    search.send_keys("rack=r07")
    wait(opened, lambda: count(opened, "#cells .cell") == 40)
    search.send_keys(Keys.CONTROL, "a")
    search.send_keys("no such host")
    wait(opened, lambda: "No host fits" in find(opened, "#table").text)


def test_the_table_is_paged_and_sorted(opened):
    assert count(opened, "#table tbody tr") == 50
    assert find(opened, "#page").text == "Page 1 of 41"
    find(opened, "#next").click()
    assert find(opened, "#page").text == "Page 2 of 41"
    find(opened, "[data-sort='odd']").click()
    assert find(opened, "#page").text == "Page 1 of 41"
    assert "n2001" in find(opened, "#table tbody tr").text


def test_the_outlier_is_named_under_its_histogram_and_leads_to_the_host(opened):
    chart = find(opened, "#numbers .chart")

    assert "p2p matrices p2p uni [NV18] (GB/s)" in chart.text
    chart.find_element("css selector", "li button").click()
    assert find(opened, "#host-name").text == "n2001"
    assert "-15.8 %" in find(opened, "dialog").text


def test_the_grid_is_one_tab_stop_and_arrows_move_in_it(opened):
    from selenium.webdriver.common.keys import Keys

    assert count(opened, "#cells .cell[tabindex='0']") == 1
    opened.execute_script("document.querySelector('#cells .cell[tabindex=\"0\"]').focus()")
    first = opened.switch_to.active_element.get_attribute("data-host")
    opened.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    second = opened.switch_to.active_element.get_attribute("data-host")
    opened.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
    third = opened.switch_to.active_element.get_attribute("data-host")
    opened.switch_to.active_element.send_keys(Keys.ENTER)

    assert len({first, second, third}) == 3
    assert find(opened, "#host-name").text == third


def test_a_hostile_host_stays_text(opened):
    assert opened.title == "FAIL: 2003 GPU hosts (SIMULATED)"
    assert count(opened, "img") == 0
    assert EVIL in [cell.get_attribute("data-host") for cell in all_of(opened, "#cells .cell.fail")]


def test_the_page_is_marked_simulated_and_can_be_dark(opened):
    assert "SIMULATED" in find(opened, ".simulated").text
    before = opened.execute_script("return getComputedStyle(document.body).backgroundColor")
    find(opened, "#theme").click()
    assert opened.execute_script("return getComputedStyle(document.body).backgroundColor") != before


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_wider_than_the_screen(opened, width):
    screen(opened, width)
    opened.refresh()

    assert opened.execute_script("return document.documentElement.scrollWidth") <= width
    assert crowded(opened, ".tile") == []
    opened.execute_script("openHost('n2001')")
    dialog = opened.execute_script("const d = document.querySelector('dialog'); return [d.scrollWidth, d.clientWidth]")
    assert dialog[0] <= dialog[1]
    whole_screen(opened)


@pytest.mark.parametrize("width", [1280, 390])
def test_results_of_equal_computations_are_listed_with_the_host_that_differs(browser, tmp_path, width):
    hosts = [measured() | trained(digest * 64) for digest in "eddddddddddd"]
    path = tmp_path / "fleet.html"
    path.write_text(to_html(compared(*hosts)), encoding="utf-8")
    screen(browser, width)
    browser.get(path.as_uri())

    rows = [row.text for row in all_of(browser, "#results tbody tr")]
    assert [row for row in rows if "matrix-bf16" in row and "48 results of 12 hosts all equal" in " ".join(row.split())]
    assert [row for row in rows if "losses of torch ddp mlp" in row and "n0" in row]
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    whole_screen(browser)
