"""A host's page in a real browser, used as a person would: read, filtered, copied from, pointed at."""

import base64
import re
from itertools import product

import pytest

from tests.browser import all_of, count, crowded, find, wait
from tests.render.pages import PAGES, without_scripts
from tests.render.reports import REPORTS
from tests.shared import sampled

pytestmark = pytest.mark.browser


@pytest.fixture
def open_page(show):
    return lambda name, width=1280: show(PAGES[f"report-{name}"], width)


def test_a_click_copies_the_command(open_page):
    page = open_page("sick")
    page.execute_cdp_cmd("Browser.grantPermissions", {"permissions": ["clipboardReadWrite"]})
    button = find(page, "#findings article .copy")
    button.click()

    wait(page, lambda: button.text == "Copied")
    assert page.execute_async_script("navigator.clipboard.readText().then(arguments[0])") == "dmesg | grep -e Xid"


def test_without_the_clipboard_the_command_is_copied_the_older_way(open_page):
    """A page on plain http, or in a frame, may not use it."""
    page = open_page("sick")
    page.execute_script("Object.defineProperty(window, 'isSecureContext', { value: false })")
    button = all_of(page, "#findings article .copy")[1]
    button.click()

    wait(page, lambda: button.text in ("Copied", "Select"))
    assert page.execute_script("return getSelection().toString()") == "gpucheck verify --only nvlink"


def test_a_tile_shows_only_its_findings_and_again_all(open_page):
    page = open_page("sick")
    shown = "return [...document.querySelectorAll('#findings > [data-verdict]')].filter((e) => e.offsetParent).length"

    assert page.execute_script(shown) == 6
    find(page, ".tile[data-verdict='warn']").click()
    assert page.execute_script(shown) == 1
    assert find(page, ".tile[data-verdict='warn']").get_attribute("aria-pressed") == "true"
    find(page, ".tile[data-verdict='pass']").click()
    assert page.execute_script(shown) == 1
    assert "all 8 GPUs" in find(page, "#findings details[data-verdict='pass'] table").text
    find(page, ".tile[data-verdict='pass']").click()
    assert page.execute_script(shown) == 6


def test_evidence_is_folded_and_unfolds(open_page):
    page = open_page("sick")
    evidence = find(page, "#findings article pre")

    assert not evidence.is_displayed()
    find(page, "#findings article summary").click()
    assert evidence.is_displayed()
    assert "17 of 18 ports up" in evidence.text
    find(page, "#unfold").click()
    assert all(pre.is_displayed() for pre in all_of(page, "#findings article pre"))


def test_a_cell_of_the_heat_map_says_what_it_should_be(open_page):
    page = open_page("sick")
    slow = find(page, "#p2p_uni_gb_s td.fail")
    slow.click()

    bus_ids = [gpu.pci_bus_id for gpu in REPORTS["sick"].topology.gpus[:2]]
    assert slow.text == "\u00d7190"
    assert count(page, "#p2p_uni_gb_s td.fail") == 2
    assert count(page, "#p2p_uni_gb_s td.pass") == 8 * 7 - 2
    assert find(page, "#cell").text.startswith(f"GPU 0 ({bus_ids[0]}) to GPU 1 ({bus_ids[1]}), NV18, one direction 190")
    assert "expected 382.5, not below 355.7: 18 NVLinks" in find(page, "#cell").text


def test_a_matrix_is_one_stop_and_arrows_move_in_it(open_page):
    from selenium.webdriver.common.keys import Keys

    page = open_page("sick")
    assert count(page, "#p2p_uni_gb_s td[tabindex='0']") == 1
    page.execute_script("document.querySelector('#p2p_uni_gb_s tbody td').focus()")
    page.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)

    assert page.switch_to.active_element.text == "\u00d7190"
    assert "one direction 190" in find(page, "#cell").text


def test_a_link_to_a_finding_shows_it_with_its_evidence(open_page):
    page = open_page("sick")
    anchor = find(page, "#findings article").get_attribute("id")
    assert find(page, f"#findings a[href='#{anchor}']").is_displayed()
    address = page.current_url
    page.get("about:blank")
    page.get(f"{address}#{anchor}")

    assert find(page, f"#{anchor} pre").is_displayed()


def test_paper_has_all_evidence_and_no_buttons(open_page):
    page = open_page("sick")
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    page.execute_script("dispatchEvent(new Event('beforeprint'))")
    shown = [pre.is_displayed() for pre in all_of(page, "#findings article pre")]
    buttons = [button.is_displayed() for button in all_of(page, ".copy, #theme, #unfold, .tabs button")]
    heats = [heat.is_displayed() for heat in all_of(page, ".heat")]
    page.execute_script("dispatchEvent(new Event('afterprint'))")
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})

    assert all(shown)
    assert all(heats)
    assert not any(buttons)
    assert not find(page, "#findings article pre").is_displayed()


def test_paper_of_a_page_where_nothing_is_wrong_is_three_sheets(open_page):
    """Passes are names there; A4 is 8.27 x 11.69 inches."""
    paper = {"printBackground": True, "paperWidth": 8.27, "paperHeight": 11.69}
    printed = base64.b64decode(open_page("healthy").execute_cdp_cmd("Page.printToPDF", paper)["data"])

    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 3


def test_the_tabs_are_one_stop_and_arrows_move_in_them(open_page):
    from selenium.webdriver.common.keys import Keys

    page = open_page("sick")
    assert count(page, "[role=tab][tabindex='0']") == 1
    find(page, "[role=tab]").send_keys(Keys.ARROW_RIGHT)

    assert find(page, "#p2p_bidir_gb_s").is_displayed()
    assert not find(page, "#p2p_uni_gb_s").is_displayed()


def test_dark_follows_the_system_and_the_button(open_page):
    page = open_page("sick")
    colour = "return getComputedStyle(document.body).backgroundColor"
    page.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    )
    page.refresh()
    dark = page.execute_script(colour)
    find(page, "#theme").click()
    light = page.execute_script(colour)

    assert [sum(map(int, re.findall(r"\d+", c))) > 384 for c in (dark, light)] == [False, True]


def test_the_page_is_whole_without_scripts(show):
    """Jenkins shows an archived page without them."""
    page = show(without_scripts(PAGES["report-sick"]))

    assert "a link is down" in find(page, "#findings").text
    assert find(page, "#p2p_bidir_gb_s").is_displayed()
    assert find(page, ".drawing .gpu").is_displayed()
    assert not find(page, ".copy").is_displayed()
    assert not find(page, "#theme").is_displayed()


SCREENS = list(product(["sick", "rack"], [1280, 390], ["100%", "200%"]))


@pytest.mark.parametrize(("name", "width", "letters"), sampled(SCREENS, (0, 7)))
def test_no_word_comes_nearer_to_its_tiles_border_than_the_padding(open_page, name, width, letters):
    """Also with large letters and with counts of six digits."""
    page = open_page(name, width)
    page.execute_script("document.documentElement.style.fontSize = arguments[0]", letters)

    assert count(page, ".tile") == 5
    assert crowded(page, ".tile") == []
